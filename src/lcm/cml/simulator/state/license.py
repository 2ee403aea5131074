"""The license of a simulated CML, and the Smart Account at Cisco that counts licenses."""

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
BAD_TOKEN_PREFIX = "bad"  # noqa: S105 - the prefix of tokens that the account rejects
BAD_TOKEN_REASON = "The token is not valid: it is unknown, was revoked or has expired"  # noqa: S105
NO_RESPONSE_REASON = "No response from the licensing service"
BASE_FEATURE = "simulated.CML_BASE,1.0"
NODE_FEATURE = "regid.2019-10.com.cisco.CML_NODE_COUNT,1.0_2607650b-6ca8-46d5-81e5-e6688b7383c4"

_TOKEN_PATTERN = re.compile(r"[a-zA-Z\d+/%=-]{1,256}")
_RETRY_SECONDS = 30.0
_MAX_NODES = 300
_PERSISTED_FIELDS = ("status", "authorization", "product", "transport", "nodes", "product_uuid")


class LicensingMode(StrEnum):
    """How the licensing service behaves."""

    NORMAL = "normal"
    BAD_TOKEN = "bad_token"  # noqa: S105 - every token is rejected
    RETRY = "retry"  # it does not respond; registration keeps retrying
    SSMS_TIMEOUT = "ssms_timeout"  # it does not respond; deregistration is local only
    BUSY = "busy"  # CML is busy with licensing and rejects requests


class SmartAccount:
    """The holders of licenses. A server that was removed without deregistering is still counted."""

    def __init__(self) -> None:
        self.holders: set[str] = set()
        self.total_registrations = 0

    def register(self, product_uuid: str) -> None:
        """Add a holder."""
        self.total_registrations += 1
        self.holders.add(product_uuid)

    def release(self, product_uuid: str) -> None:
        """Remove a holder."""
        self.holders.discard(product_uuid)


@dataclass
class _AttemptTimes:
    """The times of registering or renewing, as CML reports them."""

    succeeded: str | None = None
    attempted: str | None = None
    scheduled: str | None = None
    failure: str | None = None
    success: str = "FAILED"

    def payload(self) -> dict[str, object]:
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
    """The licensing state machine. Requests return at once; their effect follows later."""

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
    _bad_token: bool = False  # the token of the last request will be rejected

    @property
    def registered(self) -> bool:
        """Whether the server considers itself registered."""
        return self.status == "COMPLETED"

    def register(self, token: str, *, reregister: bool) -> None:
        """Begin a registration."""
        self._reject_if_busy()
        if not _TOKEN_PATTERN.fullmatch(token):
            raise SimulatorApiError(400, "The token contains invalid characters")
        if self.registered and not reregister:
            raise SimulatorApiError(400, "Already registered; set reregister to replace the registration")
        self.status, self._attempt = "IN_PROGRESS", self._attempt + 1
        self._registering = _AttemptTimes(attempted=self._date())
        self._bad_token = token.startswith(BAD_TOKEN_PREFIX)
        number = self._attempt
        self.time.call_later(self.register_seconds, lambda: self._handle_service_response(token, number))

    def snapshot(self) -> dict[str, Any]:
        """What the server stores on its disk; never a token."""
        return {
            **{name: getattr(self, name) for name in _PERSISTED_FIELDS},
            "mode": self.mode.value,
            "registering": asdict(self._registering),
            "renewing": asdict(self._renewing),
            "bad": self._bad_token,
        }

    def restore(self, stored: dict[str, Any]) -> None:
        """Restore a stored state. A registration in progress is requested again; the account is restored separately."""
        for name in _PERSISTED_FIELDS:
            setattr(self, name, stored[name])
        self.mode = LicensingMode(stored["mode"])
        self._registering, self._renewing = _AttemptTimes(**stored["registering"]), _AttemptTimes(**stored["renewing"])
        self._bad_token, self._attempt = stored["bad"], self._attempt + 1
        number = self._attempt
        if self.status in ("IN_PROGRESS", "RETRY_IN_PROGRESS"):
            self.time.call_later(
                self.register_seconds,
                lambda: self._handle_service_response(BAD_TOKEN_PREFIX if self._bad_token else "", number),
            )

    async def deregister(self) -> bool:
        """Deregister. False if the licensing service was not reached and only this server dropped the license."""
        self._reject_if_busy()
        if not self.registered:
            raise SimulatorApiError(400, "Not registered")
        await self.time.sleep(self.deregister_seconds)
        reached = self.mode is not LicensingMode.SSMS_TIMEOUT
        if reached:
            self.account.release(self.product_uuid)
        self.status, self.authorization, self._registering = "NOT_REGISTERED", "EVAL", _AttemptTimes()
        self.telemetry.record("license_info", status=self.status)
        return reached

    def renew(self) -> None:
        """Renew registration or authorization."""
        self._reject_if_busy()
        if not self.registered:
            raise SimulatorApiError(400, "Not registered")
        self._renewing = _AttemptTimes(attempted=self._date(), succeeded=self._date(), success="SUCCESS")

    def set_product(self, product: Any) -> None:
        """Select the product."""
        self._reject_if_busy()
        if product not in PRODUCTS:
            raise SimulatorApiError(400, f"No such product: {product}")
        if product == self.product:
            raise SimulatorApiError(400, f"Already active: {product}")
        self.product = product

    def set_transport(self, transport: Any) -> None:
        """Set the route to the licensing service."""
        self._reject_if_busy()
        if not isinstance(transport, dict):
            raise SimulatorApiError(400, "The transport must be an object")
        if self.registered:
            raise SimulatorApiError(400, "Already registered; deregister first")
        self.transport = {"ssms": transport.get("ssms") or _SSMS_URL, "proxy": transport.get("proxy")}

    def set_features(self, features: Any) -> None:
        """Set the number of licensed nodes beyond the included ones."""
        self._reject_if_busy()
        if isinstance(features, dict):  # clients send a list of features, or a mapping from id to count
            features = [{"id": name, "count": count} for name, count in features.items()]
        if not isinstance(features, list):
            raise SimulatorApiError(400, "The features must be a list")
        for feature in features:
            count = feature.get("count") if isinstance(feature, dict) else None
            if not isinstance(count, int) or feature.get("id") != NODE_FEATURE or not 0 <= count <= _MAX_NODES:
                raise SimulatorApiError(400, "Unknown feature or count out of range")
            self.nodes = count

    def payload(self) -> dict[str, object]:
        """The response to `GET /licensing`."""
        registered = self.registered
        return {
            "udi": {"hostname": self.hostname, "product_uuid": self.product_uuid},
            "registration": {
                "status": self.status,
                "smart_account": "Simulated Account" if registered else None,
                "virtual_account": "Laboratories" if registered else None,
                "instance_name": self.hostname if registered else None,
                "expires": self._date(days=365) if registered else None,
                "register_time": self._registering.payload(),
                "renew_time": self._renewing.payload(),
            },
            "authorization": {
                "status": self.authorization,
                "expires": self._date(days=90) if registered else None,
                "renew_time": self._renewing.payload(),
            },
            "features": self._features(),
            "reservation_mode": False,
            "product_license": {"active": self.product, "is_enterprise": self.product != "CML_Personal"},
            "transport": {"default_ssms": _SSMS_URL, **self.transport},
        }

    def _features(self) -> list[dict[str, object]]:
        status = self.authorization if self.registered else "INIT"
        named = (
            (BASE_FEATURE, "Base license", 1, 1),
            (NODE_FEATURE, "Additional nodes", self.nodes, 0),
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

    def _handle_service_response(self, token: str, number: int) -> None:
        """Handle the response of the licensing service, or its absence. Responses to older requests are ignored."""
        if number != self._attempt or self.status not in ("IN_PROGRESS", "RETRY_IN_PROGRESS"):
            return
        if self.mode in (LicensingMode.RETRY, LicensingMode.SSMS_TIMEOUT):
            self.status, self._registering.failure = "RETRY_IN_PROGRESS", NO_RESPONSE_REASON
            self._registering.scheduled = self._date()
            self.time.call_later(_RETRY_SECONDS, lambda: self._handle_service_response(token, number))
            return
        if self.mode is LicensingMode.BAD_TOKEN or token.startswith(BAD_TOKEN_PREFIX):
            self.status, self._registering.failure = "FAILED", BAD_TOKEN_REASON
        else:
            self.status, self.authorization = "COMPLETED", "IN_COMPLIANCE"
            self._registering.succeeded, self._registering.success = self._date(), "SUCCESS"
            self._registering.failure = None
            self.account.register(self.product_uuid)
        self.telemetry.record("license_info", status=self.status)

    def _reject_if_busy(self) -> None:
        if self.mode is LicensingMode.BUSY or self.status == "IN_PROGRESS":
            raise SimulatorApiError(409, "Busy with another licensing request")

    def _date(self, days: int = 0) -> str:
        return (self.time.wall_time() + timedelta(days=days)).strftime("%Y-%m-%d %H:%M:%S")


_SSMS_URL = "https://licensing.invalid/license"
