"""Verifies JWTs of an identity provider: signature, issuer, audience and times; and finds the role in their claims.

Only asymmetric signatures are accepted, each with a key and algorithm that the provider publishes (see `jwks`).
"""

from __future__ import annotations

import hmac
import math
import re
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import jwt

from lcm.control_plane.auth.oidc.jwks import ASYMMETRIC_ALGORITHMS
from lcm.control_plane.auth.roles import (
    PERSON_ROLES,
    Caller,
    ForbiddenError,
    IdentityProviderUnavailableError,
    UnauthenticatedError,
)
from lcm.core import clock
from lcm.model.access import CallerKind, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lcm.control_plane.auth.oidc.jwks import JwksCache, VerifyingKey
    from lcm.control_plane.auth.teams import TeamDirectory

LEEWAY = 30.0
"""Seconds by which the provider's clock may differ from ours."""

MAX_TOKEN_LENGTH = 16 * 1024
_JWT_PATTERN = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]*", re.ASCII)
_MAX_NAME_LENGTH = 128
_MAX_GROUPS, _MAX_GROUP_LENGTH, _MAX_EMAIL_LENGTH = 500, 256, 255
_MAX_SUBJECT_LENGTH = 255  # as OpenID Connect allows
_ROLE_NAMES = ", ".join(PERSON_ROLES)
_RESERVED_NAMES = frozenset({"bootstrap", "controller", "local", "retention", "start-up"})

# Times are checked here, with `lcm.core.clock`; the library would use the machine's clock.
_SIGNATURE_ONLY_OPTIONS: Any = {
    "verify_signature": True,
    **dict.fromkeys(("verify_exp", "verify_nbf", "verify_iat", "verify_aud", "verify_iss"), False),
    **dict.fromkeys(("verify_sub", "verify_jti"), False),
}


@dataclass(frozen=True, slots=True)
class OidcConfig:
    """Whose tokens are accepted, and which claim holds the role. `role_claim` may be a path such as `realm.roles`.

    `audience` is that of bearer tokens, None if none is accepted; that of ID tokens is the `client_id`. `role_map` has
    the role of each group; if it is empty, the claim itself holds the role. With `maps_teams` some groups have roles in
    teams only, which the `TeamDirectory` knows.
    """

    issuer: str
    audience: str | None = None
    role_claim: str = "roles"
    role_map: Mapping[str, Role] = field(default_factory=dict)
    client_id: str = ""
    maps_teams: bool = False

    @property
    def is_mapped(self) -> bool:
        """Whether groups have roles, for the fleet or in teams; if not, the claim holds the role."""
        return bool(self.role_map) or self.maps_teams


class NoRoleError(ForbiddenError):
    """A person has an account at the provider and no role here; `groups` are what the claim held."""

    def __init__(self, message: str, name: str, subject: str, claim: str, groups: Sequence[str]) -> None:
        super().__init__(message)
        self.name = name
        self.subject = subject
        self.claim = claim
        self.groups = tuple(groups)


def looks_like_jwt(text: str) -> bool:
    """Whether the text has the format of a JWT."""
    return len(text) <= MAX_TOKEN_LENGTH and _JWT_PATTERN.fullmatch(text) is not None


class OidcVerifier:
    """Verifies tokens of one identity provider."""

    def __init__(self, config: OidcConfig, keys: JwksCache, teams: TeamDirectory | None = None) -> None:
        """`teams` knows the roles of people in teams."""
        self._config = config
        self._keys = keys
        self._teams = teams

    async def verify(self, text: str) -> Caller:
        """The caller that a bearer token identifies.

        Raises `UnauthenticatedError` for an invalid token, `ForbiddenError` for a user without a role here, and
        `IdentityProviderUnavailableError` while the provider's keys were never read.
        """
        if self._config.audience is None:
            raise UnauthenticatedError("JWTs are not accepted here. Sign in with lcm login, or use a token of LCM.")
        claims, expires_at = await self._valid_claims(text, self._config.audience)
        return await self.caller_of(claims, expires_at)

    async def verify_id_token(self, text: str, nonce: str | None) -> Mapping[str, Any]:
        """The claims of an ID token that the provider itself sent; `nonce` is that of the sign-in, if it had one."""
        claims, _ = await self._valid_claims(text, self._config.client_id, from_provider=True)
        several = isinstance(claims.get("aud"), list) and len(claims["aud"]) > 1
        if claims.get("azp", None if several else self._config.client_id) != self._config.client_id:
            raise UnauthenticatedError("This token was issued to another application.")
        received = claims.get("nonce")
        if nonce is not None and not (isinstance(received, str) and _equal(received, nonce)):
            raise UnauthenticatedError("This token belongs to another sign-in. Sign in again.")
        return claims

    async def caller_of(self, claims: Mapping[str, Any], expires_at: datetime | None = None) -> Caller:
        """The person that verified claims describe; raises `NoRoleError` for a user without a role here."""
        subject, name = _subject(claims), _user_name(claims)
        groups = _claim_values(claims, self._config.role_claim)
        caller = Caller(
            name=name,
            kind=CallerKind.OIDC,
            role=self._role(groups),
            expires_at=expires_at,
            subject=f"{self._config.issuer}#{subject}",
            groups=tuple(group for group in groups[:_MAX_GROUPS] if len(group) <= _MAX_GROUP_LENGTH),
            email=_verified_email(claims),
        )
        if self._teams is not None:
            caller = await self._teams.with_grants(caller)
        if caller.role is None and not caller.grants:
            raise self._no_role(caller, groups)
        return caller

    async def is_complete(self, claims: Mapping[str, Any]) -> bool:
        """Whether the claim of roles is there, and the address if teams name people by it.

        Some providers send one of them, or both, with userinfo only.
        """
        if not _claim_values(claims, self._config.role_claim):
            return False
        return "email" in claims or self._teams is None or not await self._teams.name_people_by_address()

    def has_role_claim(self, claims: Mapping[str, Any]) -> bool:
        """Whether the claim of roles is there, even if it is empty. Some providers never send it with userinfo."""
        return _claim(claims, self._config.role_claim) is not None

    async def _valid_claims(
        self, text: str, audience: str, *, from_provider: bool = False
    ) -> tuple[Mapping[str, Any], datetime]:
        claims = await self._signed_claims(text, from_provider=from_provider)
        expires_at = _check_times(claims)
        if claims.get("iss") != self._config.issuer:
            raise UnauthenticatedError(f"This token is not from {self._config.issuer}.")
        received = claims.get("aud")
        if audience not in (received if isinstance(received, list) else [received]):
            raise UnauthenticatedError(f"This token is not meant for {audience}.")
        return claims, expires_at

    async def _signed_claims(self, text: str, *, from_provider: bool) -> Mapping[str, Any]:
        kid, algorithm = _header(text)
        candidates = await self._keys.candidates(kid, algorithm, from_provider=from_provider)
        claims = _verified_claims(candidates, text, algorithm)
        if claims is None and kid is None and candidates:
            # It names no key, so only now is it clear that it may be signed with a new one.
            candidates = await self._keys.candidates(kid, algorithm, refresh=True, from_provider=from_provider)
            claims = _verified_claims(candidates, text, algorithm)
        if claims is not None:
            return claims
        if not self._keys.has_keys:
            raise IdentityProviderUnavailableError(
                "The identity provider's keys cannot be read now. Try again soon, or use a token."
            )
        if not candidates:
            raise UnauthenticatedError("This token is signed with a key that the identity provider does not publish.")
        raise UnauthenticatedError("This token's signature is wrong.")

    def _role(self, groups: Sequence[str]) -> Role | None:
        """The highest role for the whole fleet."""
        mapped = self._config.is_mapped
        found = [self._config.role_map.get(group) if mapped else _person_role(group) for group in groups]
        return max((role for role in found if role is not None), key=PERSON_ROLES.index, default=None)

    def _no_role(self, caller: Caller, groups: Sequence[str]) -> NoRoleError:
        config = self._config
        allowed = "a group that OIDC_ROLE_MAP gives a role" if config.is_mapped else f"one of {_ROLE_NAMES}"
        message = (
            f"{caller.name} is signed in but has no role here: the claim {config.role_claim} must hold {allowed},"
            " or a team must have this person as a member. Ask the administrator of the identity provider or of LCM."
        )
        return NoRoleError(message, caller.name, caller.subject or "", config.role_claim, groups)


def _equal(received: str, expected: str) -> bool:
    return hmac.compare_digest(received.encode("utf-8", "surrogatepass"), expected.encode())


def _verified_claims(keys: Iterable[VerifyingKey], text: str, algorithm: str) -> Mapping[str, Any] | None:
    for candidate in keys:
        # Only the algorithm of the key is allowed: a public key can never be used as an HMAC secret.
        with suppress(jwt.PyJWTError, ValueError, TypeError, RecursionError):
            return jwt.decode(text, key=candidate.key, algorithms=[algorithm], options=_SIGNATURE_ONLY_OPTIONS)
    return None


def _header(text: str) -> tuple[str | None, str]:
    if not looks_like_jwt(text):
        raise UnauthenticatedError("This is not a valid token.")
    try:
        header = jwt.get_unverified_header(text)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise UnauthenticatedError("This is not a valid token.") from None
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in ASYMMETRIC_ALGORITHMS:
        raise UnauthenticatedError(f"This token is not signed by one of {', '.join(sorted(ASYMMETRIC_ALGORITHMS))}.")
    return header.get("kid"), algorithm


def _check_times(claims: Mapping[str, Any]) -> datetime:
    now = clock.now().timestamp()
    expires = _time_claim(claims, "exp")
    if expires is None:
        raise UnauthenticatedError("This token has no expiry.")
    if expires + LEEWAY <= now:
        raise UnauthenticatedError("This token has expired. Sign in again.")
    for claim in ("nbf", "iat"):
        begins = _time_claim(claims, claim)
        if begins is not None and begins - LEEWAY > now:
            raise UnauthenticatedError("This token is not valid yet. Check the clocks of both machines.")
    try:
        return datetime.fromtimestamp(expires, UTC)
    except (OverflowError, ValueError, OSError):
        raise UnauthenticatedError("This token's exp is not a time.") from None


def _time_claim(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    with suppress(OverflowError):
        # NaN is neither less nor greater than any time, so it would pass every comparison.
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    raise UnauthenticatedError(f"This token's {name} is not a time.")


def _user_name(claims: Mapping[str, Any]) -> str:
    verified = ("email",) if claims.get("email_verified") is True else ()
    for claim in ("preferred_username", *verified, "sub"):
        value = _text_claim(claims, claim, _MAX_NAME_LENGTH)
        if value is not None:
            # People choose this name: it must not pass for an account of LCM itself.
            return f"{value} (oidc)" if value.strip().casefold() in _RESERVED_NAMES else value
    raise UnauthenticatedError(
        "This token names no user: it has no preferred_username, and its sub is too long for a name."
    )


def _verified_email(claims: Mapping[str, Any]) -> str | None:
    """The address, if the provider has verified it: anyone can claim another."""
    email = _text_claim(claims, "email", _MAX_EMAIL_LENGTH) if claims.get("email_verified") is True else None
    return None if email is None else email.casefold()


def _subject(claims: Mapping[str, Any]) -> str:
    """Who it is, whatever they are called: people choose their name at many providers, and may take that of another."""
    subject = _text_claim(claims, "sub", _MAX_SUBJECT_LENGTH)
    if subject is None:
        raise UnauthenticatedError("This token names no user: it has no usable sub, which every provider must send.")
    return subject


def _text_claim(claims: Mapping[str, Any], claim: str, longest: int) -> str | None:
    value = claims.get(claim)
    return value if isinstance(value, str) and value.isprintable() and 0 < len(value) <= longest else None


def _claim(claims: Mapping[str, Any], claim: str) -> Any:
    value: Any = claims.get(claim)
    if value is None:
        value = claims
        for step in claim.split("."):
            value = value.get(step) if isinstance(value, dict) else None
    return value


def _claim_values(claims: Mapping[str, Any], claim: str) -> Sequence[str]:
    value = _claim(claims, claim)
    if isinstance(value, str):
        # One group, whose name may have spaces, or several.
        return list(dict.fromkeys((value, *value.replace(",", " ").split())))
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []


def _person_role(word: str) -> Role | None:
    """Only our own tokens give the controller role: a claim must never grant access to secrets."""
    return next((role for role in PERSON_ROLES if role == word.strip().lower()), None)
