"""Accounts and their session tokens."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lcm.cml.simulator.state.clock import new_uuid
from lcm.cml.simulator.state.faults import SimulatorApiError
from lcm.core import clock

if TYPE_CHECKING:
    from lcm.cml.simulator.state.clock import SimulatedClock
    from lcm.cml.simulator.state.telemetry import Telemetry

MAX_LOGINS_PER_MINUTE = 60
_TOKEN_HEADER = {"alg": "HS256", "typ": "JWT"}


@dataclass
class CMLAccount:
    """A user account."""

    username: str
    password: str = field(repr=False)
    admin: bool = True
    id: str = field(default_factory=new_uuid)


class SimulatedSessions:
    """Issues and checks tokens. A token is valid for `token_seconds` of real time: clients use the real clock."""

    def __init__(self, time: SimulatedClock, telemetry: Telemetry, token_seconds: float) -> None:
        self._time = time
        self._telemetry = telemetry
        self.token_seconds = token_seconds
        self.accounts: dict[str, CMLAccount] = {}
        self.logins = 0
        self._secret = clock.rng().getrandbits(256).to_bytes(32, "big")
        self._epoch = 0
        self._recent_logins: deque[float] = deque()

    def log_in(self, username: Any, password: Any) -> tuple[CMLAccount, str]:
        """Create a session for an account."""
        self._limit_rate()
        account = self.accounts.get(username) if isinstance(username, str) else None
        if account is None or account.password != password:
            raise SimulatorApiError(403, "Wrong user name or password")
        self.logins += 1
        self._telemetry.record("user_activity", user_id=account.id, action="login")
        return account, self._token(account)

    def expire_all(self) -> None:
        """Invalidate all tokens issued so far."""
        self._epoch += 1

    def check(self, token: str) -> CMLAccount:
        """The account of a token; raises if the token is invalid or expired."""
        head, _, signature = token.rpartition(".")
        if not head or not hmac.compare_digest(signature.encode(), self._sign(head).encode()):
            raise SimulatorApiError(401, "Unauthorized: the token is not valid")
        claims = json.loads(_decode_base64(head.partition(".")[2]))
        account = self.accounts.get(claims["sub"])
        if account is None or claims["epoch"] != self._epoch or clock.now().timestamp() >= claims["exp"]:
            raise SimulatorApiError(401, "Unauthorized: the token has expired")
        return account

    def _token(self, account: CMLAccount) -> str:
        issued = clock.now().timestamp()
        claims = {
            "sub": account.username,
            "iat": issued,
            "exp": issued + self.token_seconds,
            "epoch": self._epoch,
            "number": self.logins,
        }
        head = f"{_encode_json(_TOKEN_HEADER)}.{_encode_json(claims)}"
        return f"{head}.{self._sign(head)}"

    def _sign(self, head: str) -> str:
        return _encode_base64(hmac.digest(self._secret, head.encode(), hashlib.sha256))

    def _limit_rate(self) -> None:
        now = self._time.now
        while self._recent_logins and self._recent_logins[0] <= now - 60:
            self._recent_logins.popleft()
        if len(self._recent_logins) >= MAX_LOGINS_PER_MINUTE:
            raise SimulatorApiError(429, "Too many logins")
        self._recent_logins.append(now)


def _encode_json(value: dict[str, Any]) -> str:
    return _encode_base64(json.dumps(value).encode())


def _encode_base64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _decode_base64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
