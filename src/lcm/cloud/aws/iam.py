"""The account that calls run as, and what it is allowed to do.

EC2 checks a request with DryRun like any other, and then responds with an error instead of executing it: one code for
yes, another for no. Any other error says nothing about permissions. Tags are set only at launch, so CreateTags is
checked as a part of RunInstances and never by itself: a policy that allows no more than that would reject it.
"""

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
    """The account id, requested once: credentials are refreshed, but the account stays the same."""

    def __init__(self, gateway: AwsGateway) -> None:
        self._gateway = gateway
        self._account: str | None = None
        self._lock = asyncio.Lock()

    async def account_id(self) -> str:
        """Return the account id."""
        async with self._lock:
            if self._account is None:
                response = await self._gateway.call("GetCallerIdentity", {})
                self._account = str(response["Account"])
            return self._account


CHECKED_OPERATIONS: Final = ("StartInstances", "StopInstances", "TerminateInstances")

_ALLOWED_CODE: Final = "DryRunOperation"
_DENIED_CODES: Final = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
# A launch would be rejected with these codes for any caller: something that it is configured with does not exist, or is
# not available to this account.
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
    """What a dry run showed."""

    ALLOWED = "allowed"
    DENIED = "denied"
    MISCONFIGURED = "misconfigured"  # it would be rejected because of its configuration, allowed or not
    UNKNOWN = "unknown"  # the response says nothing about permissions
    EXECUTED = "executed"  # the endpoint executed the call instead of only checking it


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """The result of one dry run. `missing_action` is the IAM action that EC2 named, or the call itself."""

    operation: str
    outcome: DryRunOutcome
    message: str
    missing_action: str = ""


class PermissionChecker:
    """Checks what would be allowed in one region.

    Mutations are checked only after a read has shown that the endpoint supports DryRun, and never again after a dry run
    was executed: not every endpoint is AWS.
    """

    def __init__(self, gateway: AwsGateway, launches: Launcher) -> None:
        self._gateway = gateway
        self._launches = launches
        self._honors_dry_run = False

    async def check_dry_run_support(self) -> str | None:
        """Return why dry runs are not possible here; None if they are."""
        result = await self._dry_run("DescribeInstances", {"MaxResults": _SMALL_PAGE})
        self._honors_dry_run = result.outcome is DryRunOutcome.ALLOWED
        if self._honors_dry_run:
            return None
        return "this endpoint does not support DryRun" if result.outcome is DryRunOutcome.EXECUTED else result.message

    async def launch(self, parameters: LaunchParameters) -> DryRunResult:
        """Check whether this launch would be allowed, with its tags and its instance profile."""
        try:
            request = await self._launches.request(parameters)
        except CloudError as error:
            return DryRunResult("RunInstances", DryRunOutcome.UNKNOWN, str(error))
        return await self._try("RunInstances", request)

    async def changes(self, instance_id: str) -> list[DryRunResult]:
        """Check whether an instance could be started, stopped and terminated."""
        return [await self._try(operation, {"InstanceIds": [instance_id]}) for operation in CHECKED_OPERATIONS]

    async def _try(self, operation: str, request: Mapping[str, Any]) -> DryRunResult:
        if not self._honors_dry_run:
            return DryRunResult(operation, DryRunOutcome.UNKNOWN, "not checked: this endpoint may not support DryRun")
        result = await self._dry_run(operation, request, instances=1)
        self._honors_dry_run = result.outcome is not DryRunOutcome.EXECUTED
        return result

    async def _dry_run(self, operation: str, request: Mapping[str, Any], instances: int = 0) -> DryRunResult:
        try:
            await self._gateway.dry_run(operation, request, instances)
        except CloudError as error:
            return interpret_dry_run_error(operation, error)
        return DryRunResult(
            operation, DryRunOutcome.EXECUTED, f"the response to {operation} looks as if the call had been executed"
        )


def interpret_dry_run_error(operation: str, error: CloudError) -> DryRunResult:
    """Return what the error of a dry run means."""
    text = str(error)
    if error.code == _ALLOWED_CODE:
        return DryRunResult(operation, DryRunOutcome.ALLOWED, text)
    if error.code in _DENIED_CODES:
        named = _MISSING_ACTION.search(text)
        return DryRunResult(operation, DryRunOutcome.DENIED, text, named.group(1) if named else f"ec2:{operation}")
    wrong = operation == "RunInstances" and (
        error.code.startswith(_MISCONFIGURED_PREFIXES) or _INVALID_PROFILE_TEXT in text
    )
    return DryRunResult(operation, DryRunOutcome.MISCONFIGURED if wrong else DryRunOutcome.UNKNOWN, text)
