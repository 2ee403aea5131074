"""Bearer tokens: stored ones, `lcm_<id>_<secret>`, and the static tokens of the settings.

The secret of a stored token has 256 random bits and only its SHA-256 is stored: a slow hash protects secrets that can
be guessed, and this one cannot. It is returned once, by `create`. A revocation takes effect at once in this process,
and in others within `cache.AUTH_CACHE_SECONDS`.

Static tokens (`LCM_BOOTSTRAP_TOKEN`, `LCM_CONTROLLER_TOKEN`) are never stored. A person may have chosen them, so the id
by which a session refers to one is made by a slow hash: an attacker who reads the store cannot try passwords quickly.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import structlog

from lcm.control_plane.auth.cache import BackgroundWrites, TtlCache
from lcm.control_plane.auth.roles import Caller, UnauthenticatedError
from lcm.control_plane.records.readable import readable_records
from lcm.control_plane.secrets.encryption import Secret
from lcm.control_plane.store.port import Kind, Put, RevisionConflictError, Sort, Where
from lcm.core import clock
from lcm.model.access import CallerKind, Grant, Role, TokenInfo
from lcm.model.base import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lcm.control_plane.store.port import NewJournalEntry, Store


log = structlog.get_logger(__name__)

TOKENS = Kind("token", fields=("name", "role", "revoked"), unique=("name",))

_TOKEN_PATTERN = re.compile(r"lcm_(?P<id>[a-z0-9-]{1,40})_(?P<secret>[0-9a-f]{64})")
_SECRET_BYTES = 32
_NO_HASH = "0" * 64
_INVALID_CREDENTIAL = "This token is not valid. Check that it is complete, or ask an admin for a new one."
_LAST_USED_INTERVAL = timedelta(minutes=1)
_MIN_SAFE_LENGTH = 20


class _StoredToken(Record):
    """A token as it is stored."""

    info: TokenInfo
    hash: str


@dataclass(frozen=True, slots=True)
class TokenPage:
    """Tokens ordered by name, and where the next page begins; None at the end."""

    items: Sequence[TokenInfo]
    next_cursor: str | None


class UnknownTokenError(LookupError):
    """There is no token with this id."""


def parse_token_id(text: str) -> str | None:
    """The id in a bearer token, not verified; None for text of another format."""
    match = _TOKEN_PATTERN.fullmatch(text)
    return match["id"] if match else None


def _no_entries(_: TokenInfo) -> Sequence[NewJournalEntry]:
    return ()


class TokenService:
    """Creates, verifies, lists and revokes tokens, and accepts those of the settings.

    `audit` parameters build the journal entries that are committed together with the change.
    """

    def __init__(self, store: Store, static: Sequence[StaticToken] = ()) -> None:
        self._store = store
        self._static = tuple(static)
        self._cache: TtlCache[_StoredToken] = TtlCache()
        self._background = BackgroundWrites()

    async def close(self) -> None:
        """Wait for last-used times that are being written."""
        await self._background.finish()

    async def create(
        self,
        name: str,
        role: Role,
        *,
        created_by: str,
        team: str | None = None,
        expires_at: datetime | None = None,
        audit: Callable[[TokenInfo], Sequence[NewJournalEntry]] = _no_entries,
    ) -> tuple[TokenInfo, Secret]:
        """Create a token; that of an instructor or learner is for the `team` with this id.

        Raises `UniqueViolationError` if an active token has the name, and ValueError for an expiry in the past.
        """
        now = clock.now()
        if expires_at is not None and expires_at <= now:
            raise ValueError("expires_at must be in the future")
        token_id = clock.new_id("t")
        secret = clock.rng().randbytes(_SECRET_BYTES).hex()
        info = TokenInfo(
            id=token_id, name=name, role=role, team=team, created_at=now, created_by=created_by, expires_at=expires_at
        )
        token = _StoredToken(info=info, hash=_digest(secret))
        await self._store.commit([_put(token, None)], entries=audit(info))
        return info, Secret(f"lcm_{token_id}_{secret}")

    async def verify(self, text: str) -> Caller:
        """The caller of a token; raises `UnauthenticatedError` if it is unknown, expired or revoked."""
        static = [token for token in self._static if token.matches(text)]
        if static:
            return static[0].caller
        match = _TOKEN_PATTERN.fullmatch(text)
        token = await self._read(match["id"]) if match else None
        # The response does not reveal whether an id exists, and only the holder of the secret learns that a token has
        # expired or was revoked.
        matches = hmac.compare_digest(_digest(match["secret"] if match else ""), token.hash if token else _NO_HASH)
        if token is None or not matches:
            raise UnauthenticatedError(_INVALID_CREDENTIAL)
        _check_current(token.info)
        self._record_use(token)
        return Caller(
            name=token.info.name,
            kind=CallerKind.TOKEN,
            role=None if token.info.role.in_team else token.info.role,
            token_id=token.info.id,
            expires_at=token.info.expires_at,
            grants=(Grant(team=token.info.team, role=token.info.role),) if token.info.team is not None else (),
        )

    async def still_valid(self, token_id: str) -> bool:
        """Whether a token that was verified earlier is still accepted."""
        if any(token.caller.token_id == token_id for token in self._static):
            return True
        token = await self._read(token_id)
        return token is not None and token.info.revoked_at is None and not _expired(token.info)

    async def page(self, *, after: str | None = None, limit: int = 100) -> TokenPage:
        """Tokens ordered by name, including expired and revoked ones."""
        page = await self._store.find(TOKENS, sort=Sort(by="name"), after=after, limit=limit)
        listed = readable_records(page.items, _StoredToken, "token")
        return TokenPage([each.info for each in listed], page.next_cursor)

    async def find(self, token_id: str) -> TokenInfo | None:
        """A stored token, without its secret."""
        stored = await self._store.get(TOKENS, token_id)
        return None if stored is None else _StoredToken.model_validate_json(stored.body).info

    async def is_name_taken(self, name: str) -> bool:
        """Whether a token that was not revoked has this name."""
        same = Where(any_of={"name": [name], "revoked": [False]})
        return bool((await self._store.find(TOKENS, same, limit=1)).items)

    async def revoke(
        self, token_id: str, *, revoked_by: str, audit: Callable[[TokenInfo], Sequence[NewJournalEntry]] = _no_entries
    ) -> TokenInfo:
        """Revoke a token for good; repeating it changes nothing. Raises `UnknownTokenError`."""
        try:
            return await self._revoke(token_id, revoked_by, audit)
        finally:
            # Also after a failure: the commit may have happened although its response was lost.
            self._cache.drop(token_id)

    async def _revoke(
        self, token_id: str, revoked_by: str, audit: Callable[[TokenInfo], Sequence[NewJournalEntry]]
    ) -> TokenInfo:
        while True:
            stored = await self._store.get(TOKENS, token_id)
            if stored is None:
                raise UnknownTokenError(token_id)
            token = _StoredToken.model_validate_json(stored.body)
            if token.info.revoked_at is not None:
                return token.info
            info = token.info.model_copy(update={"revoked_at": clock.now(), "revoked_by": revoked_by})
            put = _put(token.model_copy(update={"info": info}), stored.revision)
            # A last-used time may be written in between, once a minute per process; a revocation must win over it.
            with suppress(RevisionConflictError):
                await self._store.commit([put], entries=audit(info))
                return info

    async def _read(self, token_id: str) -> _StoredToken | None:
        async def read() -> _StoredToken | None:
            stored = await self._store.get(TOKENS, token_id)
            return _StoredToken.model_validate_json(stored.body) if stored else None

        return await self._cache.get(token_id, read)

    def _record_use(self, token: _StoredToken) -> None:
        now = clock.now()
        last = token.info.last_used_at
        if last is not None and now - last < _LAST_USED_INTERVAL:
            return
        used = token.info.model_copy(update={"last_used_at": now})
        self._cache.replace(used.id, token.model_copy(update={"info": used}))
        self._background.start(used.id, lambda: self._write_use(used.id, now))

    async def _write_use(self, token_id: str, at: datetime) -> None:
        stored = await self._store.get(TOKENS, token_id)
        if stored is None:
            return
        token = _StoredToken.model_validate_json(stored.body)
        last = token.info.last_used_at
        if last is not None and at - last < _LAST_USED_INTERVAL:
            return
        info = token.info.model_copy(update={"last_used_at": at})
        await self._store.commit([_put(token.model_copy(update={"info": info}), stored.revision)])


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


def _put(token: _StoredToken, expected: int | None) -> Put:
    info = token.info
    revoked = info.revoked_at is not None
    return Put(
        kind=TOKENS,
        id=info.id,
        body=token.model_dump_json().encode(),
        expected=expected,
        fields={"name": info.name, "role": info.role.value, "revoked": revoked},
        unique={} if revoked else {"name": info.name},
    )


@dataclass(frozen=True, slots=True)
class StaticToken:
    """A token of the settings: its caller, and the hash it is compared with."""

    caller: Caller
    digest: bytes = field(repr=False)

    def matches(self, text: str) -> bool:
        """Whether this is the token, in constant time."""
        return hmac.compare_digest(_static_digest(text), self.digest)


def load_static_tokens(bootstrap: str | None, controller: str | None) -> tuple[StaticToken, ...]:
    """The tokens that are set. Raises ValueError if one is empty or both are equal."""
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
        # An empty token would match every request without a token.
        raise ValueError(f"{variable} must not be empty")
    if len(text) < _MIN_SAFE_LENGTH:
        log.warning(
            "static token is short enough to be guessed", variable=variable, recommended_length=_MIN_SAFE_LENGTH
        )
    caller = Caller(name=name, kind=kind, role=role, token_id=f"{name}-{_fingerprint(text)}")
    return StaticToken(caller, _static_digest(text))


def _static_digest(text: str) -> bytes:
    # The comparison must not fail, whatever bytes the header contains.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _fingerprint(text: str) -> str:
    encoded = text.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(encoded, salt=b"lcm settings token", n=2**14, r=8, p=1, dklen=8).hex()
