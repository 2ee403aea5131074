"""Which account calls run as."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from lcm.cloud.errors import CloudError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.cloud.aws.gateway import AwsGateway
    from lcm.cloud.aws.mutations import Launcher
    from lcm.cloud.types import LaunchParameters


class AccountIdentity:
    """Asked for once: credentials are renewed, but never become another account's."""

    def __init__(self, gateway: AwsGateway) -> None:
        self._gateway = gateway
        self._account: str | None = None
        self._asking = asyncio.Lock()

    async def account_id(self) -> str:
        """The number of the account."""
        async with self._asking:
            if self._account is None:
                answer = await self._gateway.call("GetCallerIdentity", {})
                self._account = str(answer["Account"])
            return self._account


CHECKED_OPERATIONS: Final = ("StartInstances", "StopInstances", "TerminateInstances")

_ALLOWED_CODE: Final = "DryRunOperation"
_DENIED_CODES: Final = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
# A launch would be refused for these too, whoever asks: what it was configured with is not there, or not for us.
_MISCONFIGURED_PREFIXES: Final = (
    "InvalidAMIID",
    "InvalidGroup",
    "InvalidKeyPair",
    "InvalidSecurityGroup",
    "InvalidSubnet",
    "OptIn",
)
_INVALID_PROFILE_TEXT: Final = "iamInstanceProfile"
_MISSING_ACTION: Final = re.compile(r"not authorized to perform: ([a-z0-9-]+:[A-Za-z0-9]+)")
_SMALL_PAGE: Final = 5


class DryRunOutcome(Enum):
    """What trying a call without making it showed."""

    ALLOWED = "allowed"
    FORBIDDEN = "forbidden"
    WRONG = "wrong"  # allowed or not, it would be refused as it is configured
    UNTOLD = "untold"  # the answer says nothing about it
    MADE = "made"  # whoever answers did not only check it


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """One call that was tried. `lacking` is the action that EC2 said was missing, or the call's own."""

    operation: str
    verdict: DryRunOutcome
    answer: str
    lacking: str = ""


class PermissionChecker:
    """What would be allowed in one region.

    Changes are tried only after a read has shown that whoever answers keeps to DryRun, and never again after one was
    answered as if it had been made: not every endpoint is AWS.
    """

    def __init__(self, gateway: AwsGateway, launches: Launcher) -> None:
        self._gateway = gateway
        self._launches = launches
        self._honors_dry_run = False

    async def tries(self) -> str | None:
        """Why nothing can be tried here; None: it can."""
        trial = await self._ask("DescribeInstances", {"MaxResults": _SMALL_PAGE})
        self._honors_dry_run = trial.verdict is DryRunOutcome.ALLOWED
        if self._honors_dry_run:
            return None
        return "this endpoint does not know DryRun" if trial.verdict is DryRunOutcome.MADE else trial.answer

    async def launch(self, parameters: LaunchParameters) -> DryRunResult:
        """Whether this launch would be allowed: with its tags, and the role that it hands to the instance."""
        try:
            request = await self._launches.request(parameters)
        except CloudError as error:
            return DryRunResult("RunInstances", DryRunOutcome.UNTOLD, str(error))
        return await self._try("RunInstances", request)

    async def changes(self, instance_id: str) -> list[DryRunResult]:
        """Whether an instance could be started, stopped and terminated."""
        return [await self._try(operation, {"InstanceIds": [instance_id]}) for operation in CHECKED_OPERATIONS]

    async def _try(self, operation: str, request: Mapping[str, Any]) -> DryRunResult:
        if not self._honors_dry_run:
            return DryRunResult(
                operation, DryRunOutcome.UNTOLD, "not tried: it is not sure that this endpoint keeps to DryRun"
            )
        trial = await self._ask(operation, request, instances=1)
        self._honors_dry_run = trial.verdict is not DryRunOutcome.MADE
        return trial

    async def _ask(self, operation: str, request: Mapping[str, Any], instances: int = 0) -> DryRunResult:
        try:
            await self._gateway.dry_run(operation, request, instances)
        except CloudError as error:
            return interpret_dry_run_error(operation, error)
        return DryRunResult(operation, DryRunOutcome.MADE, f"{operation} was answered as if it had been carried out")


def interpret_dry_run_error(operation: str, error: CloudError) -> DryRunResult:
    """What an answer means."""
    text = str(error)
    if error.code == _ALLOWED_CODE:
        return DryRunResult(operation, DryRunOutcome.ALLOWED, text)
    if error.code in _DENIED_CODES:
        named = _MISSING_ACTION.search(text)
        return DryRunResult(operation, DryRunOutcome.FORBIDDEN, text, named.group(1) if named else f"ec2:{operation}")
    wrong = operation == "RunInstances" and (
        error.code.startswith(_MISCONFIGURED_PREFIXES) or _INVALID_PROFILE_TEXT in text
    )
    return DryRunResult(operation, DryRunOutcome.WRONG if wrong else DryRunOutcome.UNTOLD, text)
