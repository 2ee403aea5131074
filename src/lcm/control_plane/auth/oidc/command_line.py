"""Sign-in of a command line: with a code that a person enters on any device, else through a browser beside it.

The control plane is the client of the identity provider in both ways. What it must remember until the person is done
is in a text that only LCM can read and the command line keeps. So every control plane can finish what another one
started, and anonymous requests write nothing to the store.

The id of the session is chosen at the start. A poll whose answer was lost is asked again and gets the same session.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections import OrderedDict
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import structlog

from lcm.control_plane.auth.oidc.fetch import ProviderResponseError
from lcm.control_plane.auth.oidc.provider import TokenRefusedError
from lcm.control_plane.auth.oidc.sign_in import code_challenge, unavailable
from lcm.control_plane.auth.rate_limit import SignInRateLimiter
from lcm.control_plane.auth.roles import TooManyAttemptsError, UnauthenticatedError
from lcm.control_plane.auth.sessions import new_session_id
from lcm.control_plane.secrets.encryption import DecryptionError, Secret, SecretLocation
from lcm.control_plane.store.port import RevisionConflictError
from lcm.core import clock
from lcm.model.access import SessionKind

if TYPE_CHECKING:
    from lcm.control_plane.auth.oidc.device_code import DeviceCode
    from lcm.control_plane.auth.oidc.provider import TokenSet
    from lcm.control_plane.auth.oidc.sign_in import FinishedSignIn, OidcSignIn
    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.auth.sessions import OpenSession, SessionService
    from lcm.control_plane.secrets.encryption import SecretBox

log = structlog.get_logger(__name__)

MAX_STARTS = 20
"""Sign-ins that an address may start in a minute: each is a request to the identity provider."""

MIN_POLL_INTERVAL = 0.9
"""Seconds between two questions to the provider about one sign-in; whoever polls faster is told to slow down."""

CODE_LIFETIME = timedelta(minutes=2)
_MAX_REMEMBERED_POLLS = 10_000
_MAX_LENGTH = 8192
_DEVICE = SecretLocation("sign_in", "command_line", "device")
_CODE = SecretLocation("sign_in", "command_line", "code")
_NOT_YET = frozenset({"authorization_pending", "slow_down"})
_USED_UP = frozenset({"expired_token", "invalid_grant", "bad_verification_code"})  # the last is a word of Entra ID
_EXPIRED = "The code has expired or was already used. Run lcm login again."


@dataclass(frozen=True, slots=True)
class StartedDeviceSignIn:
    """The codes for the person, and what the command line polls with."""

    code: DeviceCode
    handle: Secret


@dataclass(frozen=True, slots=True)
class Poll:
    """The session, or None until the person has entered the code; and whether to poll more slowly."""

    session: OpenSession | None = None
    slow_down: bool = False
    is_new: bool = False


class CommandLineSignIns:
    """Starts and finishes sign-ins of command lines."""

    def __init__(self, sign_in: OidcSignIn, sessions: SessionService, box: SecretBox) -> None:
        self._sign_in = sign_in
        self._sessions = sessions
        self._box = box
        self._starts = SignInRateLimiter(limit=MAX_STARTS)
        self._polls: OrderedDict[bytes, float] = OrderedDict()

    @property
    def public_url(self) -> str:
        """The address at which people open LCM."""
        return self._sign_in.provider.config.public_url

    async def start(self, address: str) -> StartedDeviceSignIn | None:
        """A code for a person; None if the provider gives none to LCM, so that a browser is needed.

        Raises `TooManyAttemptsError`, and `IdentityProviderUnavailableError` while the provider is silent.
        """
        self._count_start(address)
        try:
            code = await self._sign_in.provider.request_device_code()
        except TokenRefusedError as error:
            # Many providers offer codes in general, and to a client only where its registration allows them.
            log.info("identity provider gives LCM no codes for devices", error=error.code, detail=error.description)
            return None
        except ProviderResponseError as error:
            raise unavailable(error) from None
        if code is None:
            return None
        expires_at = clock.now() + timedelta(seconds=code.lifetime)
        remembered = [code.device_code.reveal(), new_session_id(), expires_at.timestamp()]
        return StartedDeviceSignIn(code, self._seal(remembered, _DEVICE))

    async def poll(self, handle: str, address: str) -> Poll:
        """Whether the person has entered the code.

        Raises `UnauthenticatedError` if the sign-in has expired or was refused, `NoRoleError` for a person without a
        role here, `IdentityProviderUnavailableError` if the provider is silent: then ask again.
        """
        remembered = self._open(handle, _DEVICE)
        if remembered is None:
            raise UnauthenticatedError(_EXPIRED)
        device_code, session_id, _ = remembered
        if (session := await self._finished(session_id)) is not None:
            return Poll(session)
        if not self._may_ask(handle):
            return Poll(slow_down=True)
        try:
            tokens = await self._sign_in.provider.exchange_device_code(Secret(device_code))
        except TokenRefusedError as error:
            return await self._not_issued(error, session_id)
        except ProviderResponseError as error:
            raise unavailable(error) from None
        caller = await self._identify(tokens)
        try:
            begun = await self._begin(caller, address, tokens, session_id)
        except RevisionConflictError:
            return Poll(await self._finished(session_id))
        return Poll(begun, is_new=True)

    async def finish_in_browser(
        self, finished: FinishedSignIn, address: str, challenge: str
    ) -> tuple[OpenSession, Secret]:
        """Open a session for a person who signed in with a browser; the code that the browser brings is for its owner.

        Only the command line that made the `challenge` can redeem it.
        """
        session = await self._begin(finished.caller, address, finished.tokens, new_session_id())
        remembered = [challenge, session.id.reveal(), (clock.now() + CODE_LIFETIME).timestamp()]
        return session, self._seal(remembered, _CODE)

    async def redeem(self, code: str, verifier: str) -> OpenSession:
        """The session of a code; raises `UnauthenticatedError` for a code of another command line or an old one."""
        remembered = self._open(code, _CODE)
        if remembered is not None and hmac.compare_digest(
            remembered[0].encode(), code_challenge(verifier).encode("utf-8", "surrogatepass")
        ):
            session = await self._finished(remembered[1])
            if session is not None:
                return session
        raise UnauthenticatedError(_EXPIRED)

    async def _not_issued(self, error: TokenRefusedError, session_id: str) -> Poll:
        if error.code in _NOT_YET:
            return Poll(slow_down=error.code == "slow_down")
        if error.code in _USED_UP:
            # Another control plane may have been asked at the same time, and have got the tokens.
            if (session := await self._finished(session_id)) is not None:
                return Poll(session)
            raise UnauthenticatedError(_EXPIRED)
        raise self._sign_in.refusal(error.code, error.description)

    async def _identify(self, tokens: TokenSet) -> Caller:
        try:
            return await self._sign_in.identify_or_revoke(tokens, None)
        except ProviderResponseError as error:
            raise unavailable(error) from None

    async def _begin(self, caller: Caller, address: str, tokens: TokenSet, session_id: str) -> OpenSession:
        kind = SessionKind.COMMAND_LINE
        return await self._sessions.begin(caller, address, tokens, kind=kind, session_id=session_id)

    async def _finished(self, session_id: str) -> OpenSession | None:
        try:
            return await self._sessions.resume(session_id, SessionKind.COMMAND_LINE)
        except UnauthenticatedError:
            return None

    def _count_start(self, address: str) -> None:
        try:
            self._starts.check(address)
        except TooManyAttemptsError as error:
            raise TooManyAttemptsError(error.retry_after, "Too many sign-ins were started from this address") from None
        self._starts.record_failure(address)

    def _may_ask(self, handle: str) -> bool:
        """Whether the provider may be asked: whoever holds one handle must not make us flood it."""
        key, now = hashlib.sha256(handle.encode("utf-8", "surrogatepass")).digest(), asyncio.get_running_loop().time()
        if now - self._polls.get(key, -MIN_POLL_INTERVAL) < MIN_POLL_INTERVAL:
            return False
        self._polls[key] = now
        self._polls.move_to_end(key)
        if len(self._polls) > _MAX_REMEMBERED_POLLS:
            self._polls.popitem(last=False)
        return True

    def _seal(self, remembered: list[Any], location: SecretLocation) -> Secret:
        return Secret(self._box.encrypt(Secret(json.dumps(remembered)), location))

    def _open(self, text: str, location: SecretLocation) -> tuple[str, str, float] | None:
        """What was remembered; None if it is not ours or has expired."""
        if len(text) > _MAX_LENGTH:
            return None
        try:
            first, session_id, expires_at = json.loads(self._box.decrypt(text, location).reveal())
        except (DecryptionError, ValueError, TypeError):
            return None
        return (first, session_id, expires_at) if clock.now().timestamp() < expires_at else None
