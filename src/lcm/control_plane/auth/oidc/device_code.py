"""A code that a person enters on any device to sign a command line in (RFC 8628), as the provider issues it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lcm.control_plane.auth.oidc.fetch import ProviderResponseError
from lcm.control_plane.secrets.encryption import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping

GRANT_TYPE = "urn:ietf:params:oauth:grant-type:device_code"
DEFAULT_INTERVAL = 5.0
_INTERVALS = (1.0, 60.0)
_MAX_LIFETIME = 1800.0
_MAX_CODE_LENGTH = 4096
_MAX_USER_CODE_LENGTH = 64
_URL = re.compile(r"(https://|http://(127\.|localhost\b|\[::1\]))[\x21-\x7e]{1,2000}", re.ASCII)


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """What the provider issued: a code for us, a code for the person, and where to enter it. Times are in seconds."""

    device_code: Secret
    user_code: str
    verification_uri: str
    verification_uri_complete: str | None
    interval: float
    lifetime: float


def parse_device_code(body: Mapping[str, Any]) -> DeviceCode:
    """The codes; raises `ProviderResponseError` unless the answer has all that is needed."""
    device_code = _text(body, "device_code", _MAX_CODE_LENGTH)
    user_code = _text(body, "user_code", _MAX_USER_CODE_LENGTH)
    address = _url(body.get("verification_uri", body.get("verification_url")))  # older providers say url
    lifetime = _seconds(body.get("expires_in"))
    if device_code is None or user_code is None or address is None or lifetime is None:
        raise ProviderResponseError("did not issue a complete code for a device")
    shortest, longest = _INTERVALS
    interval = _seconds(body.get("interval")) or DEFAULT_INTERVAL
    return DeviceCode(
        Secret(device_code),
        user_code,
        address,
        _url(body.get("verification_uri_complete")),
        min(max(interval, shortest), longest),
        min(lifetime, _MAX_LIFETIME),
    )


def _text(body: Mapping[str, Any], name: str, longest: int) -> str | None:
    value = body.get(name)
    return value if isinstance(value, str) and value.isprintable() and 0 < len(value) <= longest else None


def _url(value: object) -> str | None:
    return value if isinstance(value, str) and _URL.fullmatch(value) is not None else None


def _seconds(value: object) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
    return float(value) if known and isinstance(value, int | float) else None
