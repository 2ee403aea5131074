"""Bearer tokens: `lcm_<id>_<secret>`.

The secret has 256 random bits and only its SHA-256 is stored: a slow hash guards secrets that can be guessed, and this
one cannot. It is shown once, by `create`.

A revocation holds at once in this process, and in others within `recent.SECONDS`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from lcm.control_plane.auth.cache import BackgroundWrites, TtlCache
from lcm.control_plane.auth.roles import Caller, UnauthenticatedError
from lcm.control_plane.secrets.box import Secret
from lcm.control_plane.store.port import Kind, Put, RevisionConflictError, Sort
from lcm.core import clock
from lcm.model.access import CallerKind, Role, TokenInfo
from lcm.model.base import LenientModel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lcm.control_plane.auth.static_tokens import StaticToken
    from lcm.control_plane.store.port import NewJournalEntry, Store

TOKENS = Kind("token", fields=("name", "role", "revoked"), unique=("name",))

_TOKEN_PATTERN = re.compile(r"lcm_(?P<id>[a-z0-9-]{1,40})_(?P<secret>[0-9a-f]{64})")
_SECRET_BYTES = 32
_NO_HASH = "0" * 64
_UNKNOWN_TOKEN = "This token is not known here. Check that it is complete, or ask an admin for a new one."
_LAST_USED_INTERVAL = timedelta(minutes=1)


class _StoredToken(LenientModel):
    """A token as it is stored."""

    info: TokenInfo
    hash: str


@dataclass(frozen=True, slots=True)
class TokenPage:
    """Some tokens in order of name, and where the next page begins; None at the end."""

    items: Sequence[TokenInfo]
    next_cursor: str | None


class UnknownTokenError(LookupError):
    """There is no token with this id."""


def parse_token_id(text: str) -> str | None:
    """The id that a bearer token claims to have; None for text of another form."""
    match = _TOKEN_PATTERN.fullmatch(text)
    return match["id"] if match else None


def _no_entries(_: TokenInfo) -> Sequence[NewJournalEntry]:
    return ()


class TokenService:
    """Makes, checks, lists and revokes tokens, and accepts those of the settings.

    `audit` parameters make the journal entries that are committed together with the change.
    """

    def __init__(self, store: Store, configured: Sequence[StaticToken] = ()) -> None:
        self._store = store
        self._configured = tuple(configured)
        self._recent: TtlCache[_StoredToken] = TtlCache()
        self._aside = BackgroundWrites()

    async def close(self) -> None:
        """Finish notes of use that are being written."""
        await self._aside.finish()

    async def create(
        self,
        name: str,
        role: Role,
        *,
        created_by: str,
        expires_at: datetime | None = None,
        audit: Callable[[TokenInfo], Sequence[NewJournalEntry]] = _no_entries,
    ) -> tuple[TokenInfo, Secret]:
        """Make a token; `UniqueViolationError` if one that is not revoked has the name, ValueError for an expiry in the past."""
        now = clock.now()
        if expires_at is not None and expires_at <= now:
            raise ValueError("expires_at must be in the future")
        token_id = clock.new_id("t")
        secret = clock.rng().randbytes(_SECRET_BYTES).hex()
        info = TokenInfo(
            id=token_id, name=name, role=role, created_at=now, created_by=created_by, expires_at=expires_at
        )
        kept = _StoredToken(info=info, hash=_digest(secret))
        await self._store.commit([_put(kept, None)], entries=audit(info))
        return info, Secret(f"lcm_{token_id}_{secret}")

    async def verify(self, text: str) -> Caller:
        """Who shows this token; raises `UnauthenticatedError` if it is unknown, expired or revoked."""
        found = [token for token in self._configured if token.matches(text)]
        if found:
            return found[0].caller
        match = _TOKEN_PATTERN.fullmatch(text)
        kept = await self._kept(match["id"]) if match else None
        # An id that exists is not told from one that does not, and that a token expired or was revoked is told only to
        # who has its secret.
        right = hmac.compare_digest(_digest(match["secret"] if match else ""), kept.hash if kept else _NO_HASH)
        if kept is None or not right:
            raise UnauthenticatedError(_UNKNOWN_TOKEN)
        _check_current(kept.info)
        self._note_use(kept)
        return Caller(
            name=kept.info.name,
            kind=CallerKind.TOKEN,
            role=kept.info.role,
            token_id=kept.info.id,
            expires_at=kept.info.expires_at,
        )

    async def still_valid(self, token_id: str) -> bool:
        """Whether a token that was shown earlier would be accepted now."""
        if any(token.caller.token_id == token_id for token in self._configured):
            return True
        kept = await self._kept(token_id)
        return kept is not None and kept.info.revoked_at is None and not _expired(kept.info)

    async def page(self, *, after: str | None = None, limit: int = 100) -> TokenPage:
        """Tokens in order of name, those that expired or were revoked too."""
        page = await self._store.find(TOKENS, sort=Sort(by="name"), after=after, limit=limit)
        return TokenPage(
            [_StoredToken.model_validate_json(stored.body).info for stored in page.items], page.next_cursor
        )

    async def revoke(
        self, token_id: str, *, revoked_by: str, audit: Callable[[TokenInfo], Sequence[NewJournalEntry]] = _no_entries
    ) -> TokenInfo:
        """End a token for good; done again it changes nothing. Raises `UnknownTokenError`."""
        try:
            return await self._revoke(token_id, revoked_by, audit)
        finally:
            # Also when it failed: the commit may have happened although its answer was lost.
            self._recent.drop(token_id)

    async def _revoke(
        self, token_id: str, revoked_by: str, audit: Callable[[TokenInfo], Sequence[NewJournalEntry]]
    ) -> TokenInfo:
        while True:
            stored = await self._store.get(TOKENS, token_id)
            if stored is None:
                raise UnknownTokenError(token_id)
            kept = _StoredToken.model_validate_json(stored.body)
            if kept.info.revoked_at is not None:
                return kept.info
            info = kept.info.model_copy(update={"revoked_at": clock.now(), "revoked_by": revoked_by})
            put = _put(kept.model_copy(update={"info": info}), stored.revision)
            # A note of use may come in between, once a minute and process; a revocation must not lose against it.
            with suppress(RevisionConflictError):
                await self._store.commit([put], entries=audit(info))
                return info

    async def _kept(self, token_id: str) -> _StoredToken | None:
        async def read() -> _StoredToken | None:
            stored = await self._store.get(TOKENS, token_id)
            return _StoredToken.model_validate_json(stored.body) if stored else None

        return await self._recent.get(token_id, read)

    def _note_use(self, kept: _StoredToken) -> None:
        now = clock.now()
        last = kept.info.last_used_at
        if last is not None and now - last < _LAST_USED_INTERVAL:
            return
        used = kept.info.model_copy(update={"last_used_at": now})
        self._recent.amend(used.id, kept.model_copy(update={"info": used}))
        self._aside.start(used.id, lambda: self._write_use(used.id, now))

    async def _write_use(self, token_id: str, at: datetime) -> None:
        stored = await self._store.get(TOKENS, token_id)
        if stored is None:
            return
        kept = _StoredToken.model_validate_json(stored.body)
        last = kept.info.last_used_at
        if last is not None and at - last < _LAST_USED_INTERVAL:
            return
        info = kept.info.model_copy(update={"last_used_at": at})
        await self._store.commit([_put(kept.model_copy(update={"info": info}), stored.revision)])


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _expired(info: TokenInfo) -> bool:
    return info.expires_at is not None and info.expires_at <= clock.now()


def _check_current(info: TokenInfo) -> None:
    if info.revoked_at is not None:
        raise UnauthenticatedError(f"The token {info.name} was revoked. Ask an admin for a new one.")
    if _expired(info):
        raise UnauthenticatedError(
            f"The token {info.name} expired at {info.expires_at:%Y-%m-%d %H:%M} UTC. Ask for a new one."
        )


def _put(kept: _StoredToken, expected: int | None) -> Put:
    info = kept.info
    revoked = info.revoked_at is not None
    return Put(
        kind=TOKENS,
        id=info.id,
        body=kept.model_dump_json().encode(),
        expected=expected,
        fields={"name": info.name, "role": info.role.value, "revoked": revoked},
        unique={} if revoked else {"name": info.name},
    )
