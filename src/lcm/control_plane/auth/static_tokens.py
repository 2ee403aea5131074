"""Tokens that the settings bring along: `LCM_BOOTSTRAP_TOKEN` and `LCM_CONTROLLER_TOKEN`.

They are never stored and not kept in clear. People may have chosen them, so the id that a session remembers them by is
made by a slow hash: who reads the store cannot try words quickly.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field

import structlog

from lcm.control_plane.auth.roles import Caller
from lcm.model.access import CallerKind, Role

log = structlog.get_logger(__name__)

_MIN_SAFE_LENGTH = 20


@dataclass(frozen=True, slots=True)
class StaticToken:
    """One such token: who comes with it, and the hash that it is compared by."""

    caller: Caller
    digest: bytes = field(repr=False)

    def matches(self, text: str) -> bool:
        """Whether this is the token; takes as long for any wrong one."""
        return hmac.compare_digest(_digest(text), self.digest)


def load_static_tokens(bootstrap: str | None, controller: str | None) -> tuple[StaticToken, ...]:
    """The tokens of the settings, those that are set. ValueError if one is empty or they are the same."""
    if bootstrap is not None and bootstrap == controller:
        raise ValueError("LCM_BOOTSTRAP_TOKEN and LCM_CONTROLLER_TOKEN must differ: they give different roles")
    tokens = []
    if bootstrap is not None:
        tokens.append(_static_token("LCM_BOOTSTRAP_TOKEN", bootstrap, "bootstrap", CallerKind.BOOTSTRAP, Role.ADMIN))
    if controller is not None:
        tokens.append(
            _static_token("LCM_CONTROLLER_TOKEN", controller, "controller", CallerKind.TOKEN, Role.CONTROLLER)
        )
    return tuple(tokens)


def _static_token(variable: str, text: str, name: str, kind: CallerKind, role: Role) -> StaticToken:
    if not text.strip():
        # An empty token would be shown by everybody who shows none.
        raise ValueError(f"{variable} must not be empty")
    if len(text) < _MIN_SAFE_LENGTH:
        log.warning("a token of the settings can be guessed", variable=variable, should_have=_MIN_SAFE_LENGTH)
    caller = Caller(name=name, kind=kind, role=role, token_id=f"{name}-{_fingerprint(text)}")
    return StaticToken(caller, _digest(text))


def _digest(text: str) -> bytes:
    # Whatever bytes a header held, comparing must not fail.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _fingerprint(text: str) -> str:
    encoded = text.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(encoded, salt=b"lcm settings token", n=2**14, r=8, p=1, dklen=8).hex()
