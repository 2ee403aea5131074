"""Sign-in of a browser at the identity provider: authorization code with PKCE (RFC 7636), state and nonce.

What must be remembered until the browser returns is in a cookie that only LCM can read. So every control plane can
finish what another one started, and anonymous requests write nothing to the store.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import structlog

from lcm.control_plane.auth.cache import BackgroundWrites
from lcm.control_plane.auth.oidc.fetch import ProviderResponseError
from lcm.control_plane.auth.oidc.provider import Provider, TokenRefusedError, TokenSet
from lcm.control_plane.auth.oidc.verifier import NoRoleError
from lcm.control_plane.auth.roles import (
    AccessError,
    Caller,
    IdentityProviderUnavailableError,
    UnauthenticatedError,
)
from lcm.control_plane.secrets.encryption import DecryptionError, Secret, SecretBox, SecretLocation
from lcm.core import clock
from lcm.core.text import single_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.control_plane.auth.oidc.verifier import OidcVerifier
    from lcm.control_plane.auth.sessions import EndedSession

log = structlog.get_logger(__name__)

ATTEMPT_LIFETIME = timedelta(minutes=10)
_LOCATION = SecretLocation("sign_in", "cookie", "attempt")
_RANDOM_BYTES = 32
_MAX_COOKIE_LENGTH = 4096
_MAX_SHOWN = 200  # characters of a text of the provider
_MAX_CODE_LENGTH = 4096
_NOT_STARTED_HERE = (
    "This sign-in was not started in this browser, it took longer than ten minutes, or another one was started since."
    " Sign in again."
)
_NOT_RECOGNIZED = (
    "Your session has ended: LCM could not renew it, and you are no longer signed in at the identity provider."
    " Sign in to continue where you were."
)
_NEEDS_PERSON = frozenset(
    {"login_required", "interaction_required", "consent_required", "account_selection_required"}
)  # the answers to prompt=none
_DENIED = frozenset({"access_denied", "authorization_declined"})  # the second is what Entra ID says of a device
_REGISTRATION_PROBLEM = (
    "The identity provider does not accept LCM itself ({code}). An admin of LCM should check OIDC_CLIENT_ID,"
    " OIDC_CLIENT_SECRET, and that {uri} is registered as a redirect URI."
)
_REGISTRATION_CODES = frozenset(
    {"invalid_client", "unauthorized_client", "invalid_redirect_uri", "redirect_uri_mismatch", "unsupported_grant_type"}
)


@dataclass(frozen=True, slots=True)
class StartedSignIn:
    """Where the browser goes, and the cookie it keeps until it returns."""

    url: str
    cookie: Secret


@dataclass(frozen=True, slots=True)
class FinishedSignIn:
    """Who signed in, what the provider issued, and the page that was asked for."""

    caller: Caller
    tokens: TokenSet
    return_to: str
    replaces: str = ""


class GroupsNotSentError(Exception):
    """What the provider sent does not have the claim of groups: the person may have them still."""

    def __init__(self, claim: str) -> None:
        super().__init__(f"neither a renewed ID token nor userinfo has the claim {claim}")


class NotRecognizedError(UnauthenticatedError):
    """The provider does not know the person of a lapsed session any more. `replaces` is that session."""

    def __init__(self, return_to: str, replaces: str) -> None:
        super().__init__(_NOT_RECOGNIZED)
        self.return_to = return_to
        self.replaces = replaces


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A sign-in that was started."""

    state: str
    nonce: str
    verifier: str
    return_to: str
    expires_at: float
    replaces: str = ""  # the lapsed session that goes on, if nobody is asked for anything

    def as_text(self) -> str:
        fields = [self.state, self.nonce, self.verifier, self.return_to, self.expires_at]
        return json.dumps([*fields, self.replaces] if self.replaces else fields)


class OidcSignIn:
    """Starts and finishes sign-ins."""

    def __init__(self, provider: Provider, verifier: OidcVerifier, box: SecretBox) -> None:
        self.provider = provider
        self._verifier = verifier
        self._box = box
        self._background = BackgroundWrites()

    async def close(self) -> None:
        """Wait for tokens that are being revoked."""
        await self._background.finish()

    async def start(self, return_to: str, replaces: str = "") -> StartedSignIn:
        """A new sign-in; raises `IdentityProviderUnavailableError`.

        With `replaces`, a lapsed session, the provider asks the person for nothing: it knows them, or says so.
        """
        attempt = _Attempt(
            state=_random_text(),
            nonce=_random_text(),
            verifier=_random_text(),
            return_to=return_to,
            expires_at=(clock.now() + ATTEMPT_LIFETIME).timestamp(),
            replaces=replaces,
        )
        parameters = {
            "response_type": "code",
            "redirect_uri": self.provider.config.redirect_uri,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": code_challenge(attempt.verifier),
            "code_challenge_method": "S256",
            **({"prompt": "none"} if replaces else {}),
        }
        try:
            url = await self.provider.authorization_url(parameters)
        except ProviderResponseError as error:
            raise unavailable(error) from None
        return StartedSignIn(url, Secret(self._box.encrypt(Secret(attempt.as_text()), _LOCATION)))

    def has_started(self, cookie: str | None) -> bool:
        """Whether the cookie is of a sign-in that LCM started. Only LCM can make one, so it cannot be guessed."""
        return self._attempt(cookie) is not None

    def replaced_by(self, cookie: str | None) -> str:
        """The lapsed session that goes on if the sign-in of this cookie succeeds; empty for none."""
        attempt = self._attempt(cookie)
        return "" if attempt is None else attempt.replaces

    async def finish(self, cookie: str | None, answer: Mapping[str, str]) -> FinishedSignIn:
        """The person, from the answer that the browser brings back.

        Raises `UnauthenticatedError` if it is not the answer to this browser's sign-in or the provider refused,
        `NoRoleError` for a person without a role here, `IdentityProviderUnavailableError` if the provider is silent.
        """
        attempt = self._attempt(cookie)
        if attempt is None or not hmac.compare_digest(
            attempt.state.encode(), answer.get("state", "").encode("utf-8", "surrogatepass")
        ):
            raise UnauthenticatedError(_NOT_STARTED_HERE)
        if answer.get("iss", self.provider.config.issuer) != self.provider.config.issuer:
            raise UnauthenticatedError("This sign-in was answered by another identity provider. Sign in again.")
        if attempt.replaces and answer.get("error") in _NEEDS_PERSON:
            raise NotRecognizedError(attempt.return_to, attempt.replaces)
        if "error" in answer:
            raise self.refusal(answer["error"], answer.get("error_description", ""))
        code = answer.get("code", "")
        if not 0 < len(code) <= _MAX_CODE_LENGTH or not code.isascii():
            raise UnauthenticatedError("The identity provider sent no code. Sign in again.")
        try:
            tokens = await self.provider.exchange_code(code, Secret(attempt.verifier))
            caller = await self.identify_or_revoke(tokens, attempt.nonce)
        except TokenRefusedError as error:
            log.warning("identity provider refused a code", error=error.code, description=error.description)
            raise self.refusal(error.code, error.description) from None
        except ProviderResponseError as error:
            raise unavailable(error) from None
        return FinishedSignIn(caller, tokens, attempt.return_to, attempt.replaces)

    async def sign_out(self, ended: EndedSession) -> str | None:
        """Revoke the refresh token; returns where the browser signs out at the provider, None if it does not."""
        if ended.id_token is None and ended.refresh_token is None:
            return None
        if ended.refresh_token is not None:
            self.give_back(ended.refresh_token)
        try:
            return await self.provider.sign_out_url(ended.id_token)
        except ProviderResponseError:
            return None

    def give_back(self, refresh_token: Secret) -> None:
        """Revoke a refresh token, in the background: a slow provider must not keep a person signed in."""
        self._background.start(code_challenge(refresh_token.reveal()), lambda: self._revoke(refresh_token))

    async def _revoke(self, refresh_token: Secret) -> None:
        try:
            await self.provider.revoke(refresh_token)
        except ProviderResponseError as error:
            log.warning("refresh token could not be revoked; it expires at the provider", reason=str(error))

    async def identify_again(self, tokens: TokenSet) -> Caller:
        """The person and role by tokens that a refresh brought: not every provider sends an ID token with them.

        Raises `GroupsNotSentError` if userinfo alone can be asked, and says nothing about groups.
        """
        if tokens.id_token is not None or tokens.access_token is None:
            return await self.identify(tokens, None)
        claims = await self.provider.userinfo(tokens.access_token)
        try:
            return await self._verifier.caller_of(claims)
        except NoRoleError as error:
            if self._verifier.has_role_claim(claims):
                raise
            raise GroupsNotSentError(error.claim) from None

    async def identify_or_revoke(self, tokens: TokenSet, nonce: str | None) -> Caller:
        """The person of a sign-in. If it is refused, the refresh token is revoked: nobody will use it."""
        try:
            return await self.identify(tokens, nonce)
        except (AccessError, ProviderResponseError):
            if tokens.refresh_token is not None:
                self.give_back(tokens.refresh_token)
            raise

    async def identify(self, tokens: TokenSet, nonce: str | None) -> Caller:
        """The person that the provider issued tokens for."""
        if tokens.id_token is None:
            raise UnauthenticatedError(
                "The identity provider sent no ID token. An admin of LCM should check its setup."
            )
        claims = await self._verifier.verify_id_token(tokens.id_token.reveal(), nonce)
        if tokens.access_token is not None and not await self._verifier.is_complete(claims):
            claims = merged_claims(claims, await self.provider.userinfo(tokens.access_token))
        return await self._verifier.caller_of(claims)

    def _attempt(self, cookie: str | None) -> _Attempt | None:
        if not cookie or len(cookie) > _MAX_COOKIE_LENGTH:
            return None
        try:
            attempt = _Attempt(*json.loads(self._box.decrypt(cookie, _LOCATION).reveal()))
        except (DecryptionError, ValueError, TypeError):
            return None
        return attempt if clock.now().timestamp() < attempt.expires_at else None

    def refusal(self, code: str, description: str) -> UnauthenticatedError:
        """What a person is told about an error code of the provider."""
        shown = single_line(description, _MAX_SHOWN)
        if code in _REGISTRATION_CODES:
            return UnauthenticatedError(_REGISTRATION_PROBLEM.format(code=code, uri=self.provider.config.redirect_uri))
        if code in _DENIED:
            return UnauthenticatedError(
                _sentence("The sign-in was cancelled, or the identity provider denied it", shown)
            )
        if code == "invalid_grant":
            return UnauthenticatedError("This sign-in was already used or has expired. Sign in again.")
        named = code if code.isprintable() and len(code) <= 64 else "unknown error"
        return UnauthenticatedError(_sentence(f"The identity provider did not sign you in ({named})", shown))


def merged_claims(claims: Mapping[str, Any], userinfo: Mapping[str, Any]) -> Mapping[str, Any]:
    """The claims of an ID token, completed from userinfo of the same person; the ID token, which is signed, wins."""
    if userinfo and userinfo.get("sub") != claims.get("sub"):
        raise UnauthenticatedError("The identity provider described two different people. Sign in again.")
    if "email" in claims and claims["email"] != userinfo.get("email"):
        # That one address is verified says nothing about another: teams name people by address.
        userinfo = {name: value for name, value in userinfo.items() if name != "email_verified"}
    return {**userinfo, **claims}


def unavailable(error: ProviderResponseError) -> IdentityProviderUnavailableError:
    """What a person can do while the provider is silent."""
    return IdentityProviderUnavailableError(
        f"The identity provider {error}. Try again in a minute, or sign in with a token."
    )


def code_challenge(verifier: str) -> str:
    """The S256 challenge of a verifier."""
    return _encode(hashlib.sha256(verifier.encode()).digest())


def _random_text() -> str:
    return _encode(clock.rng().randbytes(_RANDOM_BYTES))


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _sentence(what: str, detail: str) -> str:
    return f"{what}: {detail.rstrip('.')}. Sign in again." if detail else f"{what}. Sign in again."
