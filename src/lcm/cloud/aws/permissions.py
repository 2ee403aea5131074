"""Whether EC2 would let us change something, asked without changing anything.

EC2 checks a request that says DryRun as any other, and then answers with an error instead of acting: one code for yes,
another for no. Whatever else it answers tells nothing about permissions. Tags are given at launch alone, so CreateTags
is tried with RunInstances and never by itself: a policy that allows no more than that would rightly refuse it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from lcm.cloud.errors import CloudError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.cloud.aws.gateway import Gateway
    from lcm.cloud.aws.launch import Launches
    from lcm.cloud.types import LaunchParameters

CHANGES: Final = ("StartInstances", "StopInstances", "TerminateInstances")

_YES: Final = "DryRunOperation"
_NO: Final = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
# A launch would be refused for these too, whoever asks: what it was configured with is not there, or not for us.
_WRONG: Final = ("InvalidAMIID", "InvalidGroup", "InvalidKeyPair", "InvalidSecurityGroup", "InvalidSubnet", "OptIn")
_WRONG_PROFILE: Final = "iamInstanceProfile"
_LACKING: Final = re.compile(r"not authorized to perform: ([a-z0-9-]+:[A-Za-z0-9]+)")
_FEW: Final = 5


class Verdict(Enum):
    """What trying a call without making it showed."""

    ALLOWED = "allowed"
    FORBIDDEN = "forbidden"
    WRONG = "wrong"  # allowed or not, it would be refused as it is configured
    UNTOLD = "untold"  # the answer says nothing about it
    MADE = "made"  # whoever answers did not only check it


@dataclass(frozen=True, slots=True)
class Trial:
    """One call that was tried. `lacking` is the action that EC2 said was missing, or the call's own."""

    operation: str
    verdict: Verdict
    answer: str
    lacking: str = ""


class Permissions:
    """What would be allowed in one region.

    Changes are tried only after a read has shown that whoever answers keeps to DryRun, and never again after one was
    answered as if it had been made: not every endpoint is AWS.
    """

    def __init__(self, gateway: Gateway, launches: Launches) -> None:
        self._gateway = gateway
        self._launches = launches
        self._keeps_to_it = False

    async def tries(self) -> str | None:
        """Why nothing can be tried here; None: it can."""
        trial = await self._ask("DescribeInstances", {"MaxResults": _FEW})
        self._keeps_to_it = trial.verdict is Verdict.ALLOWED
        if self._keeps_to_it:
            return None
        return "this endpoint does not know DryRun" if trial.verdict is Verdict.MADE else trial.answer

    async def launch(self, parameters: LaunchParameters) -> Trial:
        """Whether this launch would be allowed: with its tags, and the role that it hands to the instance."""
        try:
            request = await self._launches.request(parameters)
        except CloudError as error:
            return Trial("RunInstances", Verdict.UNTOLD, str(error))
        return await self._try("RunInstances", request)

    async def changes(self, instance_id: str) -> list[Trial]:
        """Whether an instance could be started, stopped and terminated."""
        return [await self._try(operation, {"InstanceIds": [instance_id]}) for operation in CHANGES]

    async def _try(self, operation: str, request: Mapping[str, Any]) -> Trial:
        if not self._keeps_to_it:
            return Trial(operation, Verdict.UNTOLD, "not tried: it is not sure that this endpoint keeps to DryRun")
        trial = await self._ask(operation, request, instances=1)
        self._keeps_to_it = trial.verdict is not Verdict.MADE
        return trial

    async def _ask(self, operation: str, request: Mapping[str, Any], instances: int = 0) -> Trial:
        try:
            await self._gateway.rehearse(operation, request, instances)
        except CloudError as error:
            return judge(operation, error)
        return Trial(operation, Verdict.MADE, f"{operation} was answered as if it had been carried out")


def judge(operation: str, error: CloudError) -> Trial:
    """What an answer means."""
    text = str(error)
    if error.code == _YES:
        return Trial(operation, Verdict.ALLOWED, text)
    if error.code in _NO:
        named = _LACKING.search(text)
        return Trial(operation, Verdict.FORBIDDEN, text, named.group(1) if named else f"ec2:{operation}")
    wrong = operation == "RunInstances" and (error.code.startswith(_WRONG) or _WRONG_PROFILE in text)
    return Trial(operation, Verdict.WRONG if wrong else Verdict.UNTOLD, text)
