"""The licence of a simulated CML, and the account at Cisco that counts licences."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from lcm.cml.simulator.state.clock import new_uuid
from lcm.cml.simulator.state.faults import SimulatorApiError

if TYPE_CHECKING:
    from lcm.cml.simulator.state.clock import SimulatedClock
    from lcm.cml.simulator.state.telemetry import Telemetry

PRODUCTS = (
    "CML_Personal",
    "CML_Personal40",
    "CML_Enterprise",
    "CML_Education",
    "CML_Internal",
    "CML_NotForResale",
)
BAD_TOKEN_PREFIX = "bad"  # noqa: S105 - how tokens begin that the account does not know
BAD_TOKEN_REASON = "The token is not valid: it is unknown, was revoked or has expired"  # noqa: S105
NO_RESPONSE_REASON = "No answer from the licensing service"
BASE_FEATURE = "simulated.CML_BASE,1.0"
NODE_FEATURE = "simulated.CML_NODES,1.0"

_TOKEN_PATTERN = re.compile(r"[a-zA-Z\d+/%=-]{1,256}")
_RETRY_SECONDS = 30.0
_MAX_NODES = 300
_PERSISTED_FIELDS = ("status", "authorization", "product", "transport", "nodes", "product_uuid")


class LicensingMode(StrEnum):
    """How the licensing service behaves."""

    NORMAL = "normal"
    BAD_TOKEN = "bad_token"  # noqa: S105 - every token is refused
    RETRY = "retry"  # it does not answer; registration goes on trying
    SSMS_TIMEOUT = "ssms_timeout"  # it does not answer; deregistration is local only
    BUSY = "busy"  # CML is busy with licensing and takes no request


class SmartAccount:
    """Who holds a licence. A machine that ended without giving its licence back is still counted here."""

    def __init__(self) -> None:
        self.holders: set[str] = set()
        self.ever = 0

    def take(self, product_uuid: str) -> None:
        """Count a registration."""
        self.ever += 1
        self.holders.add(product_uuid)

    def give_back(self, product_uuid: str) -> None:
        """Count it no more."""
        self.holders.discard(product_uuid)


@dataclass
class _AttemptTimes:
    """The times of registering or renewing, as CML tells them."""

    succeeded: str | None = None
    attempted: str | None = None
    scheduled: str | None = None
    failure: str | None = None
    success: str = "FAILED"

    def told(self) -> dict[str, object]:
        return {
            "succeeded": self.succeeded,
            "attempted": self.attempted,
            "scheduled": self.scheduled,
            "status": None,
            "failure": self.failure,
            "success": self.success,
        }


@dataclass
class SimulatedLicensing:
    """The state machine. Requests return at once, their effect comes with time."""

    time: SimulatedClock
    telemetry: Telemetry
    account: SmartAccount
    hostname: str
    register_seconds: float
    deregister_seconds: float
    mode: LicensingMode = LicensingMode.NORMAL
    status: str = "NOT_REGISTERED"
    authorization: str = "EVAL"
    product: str = "CML_Enterprise"
    transport: dict[str, Any] = field(
        default_factory=lambda: {"ssms": _SSMS_URL, "proxy": {"server": None, "port": None}}
    )
    nodes: int = 0
    product_uuid: str = field(default_factory=new_uuid)
    _registering: _AttemptTimes = field(default_factory=_AttemptTimes)
    _renewing: _AttemptTimes = field(default_factory=_AttemptTimes)
    _attempt: int = 0
    _bad: bool = False  # what was asked for last was asked for with a token that will be refused

    @property
    def registered(self) -> bool:
        """Whether the server believes that it has a licence."""
        return self.status == "COMPLETED"

    def register(self, token: str, *, reregister: bool) -> None:
        """Begin to register."""
        self._not_busy()
        if not _TOKEN_PATTERN.fullmatch(token):
            raise SimulatorApiError(400, "The token has characters that no token has")
        if self.registered and not reregister:
            raise SimulatorApiError(400, "Already registered; ask for registering again to replace it")
        self.status, self._attempt = "IN_PROGRESS", self._attempt + 1
        self._registering = _AttemptTimes(attempted=self._date())
        self._bad = token.startswith(BAD_TOKEN_PREFIX)
        number = self._attempt
        self.time.later(self.register_seconds, lambda: self._answered(token, number))

    def kept(self) -> dict[str, Any]:
        """What is on the disk of the server; never a token."""
        return {
            **{name: getattr(self, name) for name in _PERSISTED_FIELDS},
            "mode": self.mode.value,
            "registering": asdict(self._registering),
            "renewing": asdict(self._renewing),
            "bad": self._bad,
        }

    def put_back(self, stored: dict[str, Any]) -> None:
        """Be as `kept` said. The licensing service is asked anew where its answer was waited for; the account knows."""
        for name in _PERSISTED_FIELDS:
            setattr(self, name, stored[name])
        self.mode = LicensingMode(stored["mode"])
        self._registering, self._renewing = _AttemptTimes(**stored["registering"]), _AttemptTimes(**stored["renewing"])
        self._bad, self._attempt = stored["bad"], self._attempt + 1
        number = self._attempt
        if self.status in ("IN_PROGRESS", "RETRY_IN_PROGRESS"):
            self.time.later(
                self.register_seconds, lambda: self._answered(BAD_TOKEN_PREFIX if self._bad else "", number)
            )

    async def deregister(self) -> bool:
        """Give the licence back; False when the licensing service was not reached and only this server forgot it."""
        self._not_busy()
        if not self.registered:
            raise SimulatorApiError(400, "Not registered")
        await self.time.pause(self.deregister_seconds)
        reached = self.mode is not LicensingMode.SSMS_TIMEOUT
        if reached:
            self.account.give_back(self.product_uuid)
        self.status, self.authorization, self._registering = "NOT_REGISTERED", "EVAL", _AttemptTimes()
        self.telemetry.note("license_info", status=self.status)
        return reached

    def renew(self) -> None:
        """Renew registration or authorization."""
        self._not_busy()
        if not self.registered:
            raise SimulatorApiError(400, "Not registered")
        self._renewing = _AttemptTimes(attempted=self._date(), succeeded=self._date(), success="SUCCESS")

    def set_product(self, product: Any) -> None:
        """Choose what is licensed."""
        self._not_busy()
        if product not in PRODUCTS:
            raise SimulatorApiError(400, f"No such product: {product}")
        if product == self.product:
            raise SimulatorApiError(400, f"Already active: {product}")
        self.product = product

    def set_transport(self, transport: Any) -> None:
        """Choose the way to the licensing service."""
        self._not_busy()
        if not isinstance(transport, dict):
            raise SimulatorApiError(400, "The transport must be an object")
        if self.registered:
            raise SimulatorApiError(400, "Registered already; deregister first")
        self.transport = {"ssms": transport.get("ssms") or _SSMS_URL, "proxy": transport.get("proxy")}

    def set_features(self, features: Any) -> None:
        """Choose how many nodes beyond the included ones are licensed."""
        self._not_busy()
        if not isinstance(features, list):
            raise SimulatorApiError(400, "The features must be a list")
        for feature in features:
            count = feature.get("count") if isinstance(feature, dict) else None
            if not isinstance(count, int) or feature.get("id") != NODE_FEATURE or not 0 <= count <= _MAX_NODES:
                raise SimulatorApiError(400, "Unknown feature or count out of range")
            self.nodes = count

    def told(self) -> dict[str, object]:
        """The answer to `GET /licensing`."""
        known = self.registered
        return {
            "udi": {"hostname": self.hostname, "product_uuid": self.product_uuid},
            "registration": {
                "status": self.status,
                "smart_account": "Simulated Account" if known else None,
                "virtual_account": "Laboratories" if known else None,
                "instance_name": self.hostname if known else None,
                "expires": self._date(days=365) if known else None,
                "register_time": self._registering.told(),
                "renew_time": self._renewing.told(),
            },
            "authorization": {
                "status": self.authorization,
                "expires": self._date(days=90) if known else None,
                "renew_time": self._renewing.told(),
            },
            "features": self._features(),
            "reservation_mode": False,
            "product_license": {"active": self.product, "is_enterprise": self.product != "CML_Personal"},
            "transport": {"default_ssms": _SSMS_URL, **self.transport},
        }

    def _features(self) -> list[dict[str, object]]:
        status = self.authorization if self.registered else "INIT"
        named = (
            (BASE_FEATURE, "Base licence", 1, 1),
            (NODE_FEATURE, "Further nodes", self.nodes, 0),
        )
        return [
            {
                "id": feature,
                "name": name,
                "description": name,
                "in_use": in_use,
                "status": status,
                "version": "1.0",
                "min": least,
                "max": 1 if least else _MAX_NODES,
                "minEndDate": None,
                "maxEndDate": None,
            }
            for feature, name, in_use, least in named
        ]

    def _answered(self, token: str, number: int) -> None:
        """The licensing service has, or has not, answered; a later request makes an earlier one's answer moot."""
        if number != self._attempt or self.status not in ("IN_PROGRESS", "RETRY_IN_PROGRESS"):
            return
        if self.mode in (LicensingMode.RETRY, LicensingMode.SSMS_TIMEOUT):
            self.status, self._registering.failure = "RETRY_IN_PROGRESS", NO_RESPONSE_REASON
            self._registering.scheduled = self._date()
            self.time.later(_RETRY_SECONDS, lambda: self._answered(token, number))
            return
        if self.mode is LicensingMode.BAD_TOKEN or token.startswith(BAD_TOKEN_PREFIX):
            self.status, self._registering.failure = "FAILED", BAD_TOKEN_REASON
        else:
            self.status, self.authorization = "COMPLETED", "IN_COMPLIANCE"
            self._registering.succeeded, self._registering.success = self._date(), "SUCCESS"
            self._registering.failure = None
            self.account.take(self.product_uuid)
        self.telemetry.note("license_info", status=self.status)

    def _not_busy(self) -> None:
        if self.mode is LicensingMode.BUSY or self.status == "IN_PROGRESS":
            raise SimulatorApiError(409, "Busy with another licensing request")

    def _date(self, days: int = 0) -> str:
        return (self.time.stamp() + timedelta(days=days)).strftime("%Y-%m-%d %H:%M:%S")


_SSMS_URL = "https://licensing.invalid/license"
