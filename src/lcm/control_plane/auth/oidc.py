"""Sign-in by an identity provider: verifies the signature, issuer, audience, times and role of a JWT.

Only asymmetric signatures are accepted, each with a key and algorithm that the provider publishes (see `jwks`).
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import jwt

from lcm.control_plane.auth.jwks import ASYMMETRIC_ALGORITHMS
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
    from collections.abc import Iterable, Mapping

    from lcm.control_plane.auth.jwks import JwksCache, VerifyingKey

LEEWAY = 30.0
"""Seconds by which the provider's clock may differ from ours."""

MAX_TOKEN_LENGTH = 16 * 1024
_JWT_PATTERN = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]*", re.ASCII)
_MAX_NAME_LENGTH = 128
_MAX_SUBJECT_LENGTH = 255  # as OpenID Connect allows
_RESERVED_NAMES = frozenset({"bootstrap", "controller", "local", "retention", "start-up"})

# Times are checked here, with `lcm.core.clock`; the library would use the machine's clock.
_SIGNATURE_ONLY_OPTIONS: Any = {
    "verify_signature": True,
    **dict.fromkeys(("verify_exp", "verify_nbf", "verify_iat", "verify_aud", "verify_iss"), False),
    **dict.fromkeys(("verify_sub", "verify_jti"), False),
}


@dataclass(frozen=True, slots=True)
class OidcConfig:
    """Whose tokens are accepted, and which claim holds the role. `role_claim` may be a path such as `realm.roles`."""

    issuer: str
    audience: str
    role_claim: str = "roles"


def looks_like_jwt(text: str) -> bool:
    """Whether the text has the format of a JWT."""
    return len(text) <= MAX_TOKEN_LENGTH and _JWT_PATTERN.fullmatch(text) is not None


class OidcVerifier:
    """Verifies tokens of one identity provider."""

    def __init__(self, config: OidcConfig, keys: JwksCache) -> None:
        self._config = config
        self._keys = keys

    async def verify(self, text: str) -> Caller:
        """The caller that this JWT identifies.

        Raises `UnauthenticatedError` for an invalid token, `ForbiddenError` for a user without a role here, and
        `IdentityProviderUnavailableError` while the provider's keys were never read.
        """
        claims = await self._signed_claims(text)
        expires_at = _check_times(claims)
        if claims.get("iss") != self._config.issuer:
            raise UnauthenticatedError(f"This token is not from {self._config.issuer}.")
        audience = claims.get("aud")
        if self._config.audience not in (audience if isinstance(audience, list) else [audience]):
            raise UnauthenticatedError(f"This token is not meant for {self._config.audience}.")
        name = _user_name(claims)
        return Caller(
            name=name,
            kind=CallerKind.OIDC,
            role=self._role(claims, name),
            expires_at=expires_at,
            subject=f"{self._config.issuer}#{_subject(claims) or name}",
        )

    async def _signed_claims(self, text: str) -> Mapping[str, Any]:
        kid, algorithm = _header(text)
        candidates = await self._keys.candidates(kid, algorithm)
        claims = _verified_claims(candidates, text, algorithm)
        if claims is None and kid is None and candidates:
            # It names no key, so only now is it clear that it may be signed with a new one.
            candidates = await self._keys.candidates(kid, algorithm, refresh=True)
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

    def _role(self, claims: Mapping[str, Any], name: str) -> Role:
        roles = {
            role for word in _claim_values(claims, self._config.role_claim) if (role := _person_role(word)) is not None
        }
        if not roles:
            raise ForbiddenError(
                f"{name} is signed in but has no role here: the claim {self._config.role_claim} must hold"
                f" one of {', '.join(PERSON_ROLES)}. Ask the administrator of the identity provider."
            )
        return max(roles, key=PERSON_ROLES.index)


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
    for claim in ("preferred_username", "sub"):
        value = _text_claim(claims, claim, _MAX_NAME_LENGTH)
        if value is not None:
            # People choose this name: it must not pass for an account of LCM itself.
            return f"{value} (oidc)" if value.strip().casefold() in _RESERVED_NAMES else value
    raise UnauthenticatedError("This token names no user: it has neither preferred_username nor sub.")


def _subject(claims: Mapping[str, Any]) -> str | None:
    return _text_claim(claims, "sub", _MAX_SUBJECT_LENGTH)


def _text_claim(claims: Mapping[str, Any], claim: str, longest: int) -> str | None:
    value = claims.get(claim)
    return value if isinstance(value, str) and value.isprintable() and 0 < len(value) <= longest else None


def _claim_values(claims: Mapping[str, Any], claim: str) -> Iterable[str]:
    value: Any = claims.get(claim)
    if value is None:
        value = claims
        for step in claim.split("."):
            value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, str):
        return value.replace(",", " ").split()
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []


def _person_role(word: str) -> Role | None:
    """Only our own tokens give the controller role: a claim must never grant access to secrets."""
    return next((role for role in PERSON_ROLES if role == word.strip().lower()), None)
