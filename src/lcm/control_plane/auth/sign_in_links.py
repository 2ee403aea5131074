"""Sign-in links, such as `lcm up` prints: each has a code that is valid once, for some minutes.

Links are in the store, so that any control plane redeems a link of any other, and only one of them does. Only hashes of
codes are stored. The page reads the code from the fragment (after `#`) and posts it: so it is in no log, and a link
preview does not use it up.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

from lcm.control_plane.auth.roles import Caller, UnauthenticatedError
from lcm.control_plane.records.kinds import SIGN_IN_LINKS, find_all
from lcm.control_plane.secrets.encryption import Secret
from lcm.control_plane.store.port import Delete, Put, RevisionConflictError, Sort, Where
from lcm.core import clock
from lcm.model.access import CallerKind, Grant, Role
from lcm.model.base import CARRIED, Record, UtcDatetime

if TYPE_CHECKING:
    from lcm.control_plane.store.port import FieldValue, Store, StoredDocument

SIGN_IN_LINK_PATH = "/sign-in"
SIGN_IN_LINK_SECONDS = 600.0
MAX_SIGN_IN_LINKS_PER_CALLER = 10

_CODE_BYTES = 32
_NOT_VALID = "This sign-in link was already used or has expired. Request a new one."


class _StoredLink(Record):
    """A link as it is stored: the caller that it signs in."""

    name: str
    kind: Annotated[CallerKind, CARRIED]
    role: Annotated[Role, CARRIED] | None
    grants: tuple[Grant, ...] = ()
    groups: tuple[str, ...] = ()
    email: str | None = None
    token_id: str | None
    subject: str | None = None
    caller_expires_at: UtcDatetime | None = None
    session_key: str | None = None
    expires_at: UtcDatetime

    @property
    def caller(self) -> Caller:
        return Caller(
            name=self.name,
            kind=self.kind,
            role=self.role,
            grants=self.grants,
            groups=self.groups,
            email=self.email,
            token_id=self.token_id,
            expires_at=self.caller_expires_at,
            subject=self.subject,
            session_key=self.session_key,
        )


class SignInLinks:
    """Issues and redeems links. Past `MAX_SIGN_IN_LINKS_PER_CALLER` of a caller, the oldest of this caller is void."""

    def __init__(self, store: Store, seconds: float = SIGN_IN_LINK_SECONDS) -> None:
        self._store = store
        self._seconds = seconds

    async def issue(self, caller: Caller) -> Secret:
        """A code that signs a person in as `caller`."""
        code = clock.rng().randbytes(_CODE_BYTES).hex()
        expires_at = clock.now() + timedelta(seconds=self._seconds)
        link = _StoredLink(
            name=caller.name,
            kind=caller.kind,
            role=caller.role,
            grants=caller.grants if caller.subject is None else (),
            groups=caller.groups,
            email=caller.email,
            token_id=caller.token_id,
            subject=caller.subject,
            caller_expires_at=caller.expires_at,
            session_key=caller.session_key,
            expires_at=expires_at,
        )
        fields: dict[str, FieldValue] = {"owner": _owner(caller), "expires_at": expires_at.timestamp()}
        await self._store.commit([Put(SIGN_IN_LINKS, _digest(code), link.model_dump_json().encode(), None, fields)])
        await self._drop_oldest(caller)
        return Secret(code)

    async def link_path(self, caller: Caller) -> Secret:
        """The path of a link that signs a person in as `caller`."""
        return Secret(f"{SIGN_IN_LINK_PATH}#{(await self.issue(caller)).reveal()}")

    async def redeem(self, code: str) -> Caller:
        """The caller of a code, once; raises `UnauthenticatedError` for an unknown, used or expired code."""
        # Looked up by its hash, so the time it takes reveals nothing about the code.
        stored = await self._store.get(SIGN_IN_LINKS, _digest(code))
        # Of several control planes that are asked at once, the one that deletes it signs the person in.
        if stored is None or not await self._remove(stored):
            raise UnauthenticatedError(_NOT_VALID)
        link = _StoredLink.model_validate_json(stored.body)
        if link.expires_at <= clock.now():
            raise UnauthenticatedError(_NOT_VALID)
        return link.caller

    async def sweep(self) -> int:
        """Delete expired links; returns the number."""
        removed = 0
        expired = Where(below={"expires_at": clock.earliest_now().timestamp()})
        async for stored in find_all(self._store, SIGN_IN_LINKS, expired):
            removed += await self._remove(stored)
        return removed

    async def _drop_oldest(self, caller: Caller) -> None:
        newest_first = Sort(by="expires_at", descending=True)
        own = Where(any_of={"owner": (_owner(caller),)})
        page = await self._store.find(SIGN_IN_LINKS, own, sort=newest_first, limit=2 * MAX_SIGN_IN_LINKS_PER_CALLER)
        for stored in page.items[MAX_SIGN_IN_LINKS_PER_CALLER:]:
            await self._remove(stored)

    async def _remove(self, stored: StoredDocument) -> bool:
        try:
            await self._store.commit([Delete(SIGN_IN_LINKS, stored.id, stored.revision)])
        except RevisionConflictError:
            return False
        return True


def _owner(caller: Caller) -> str:
    return caller.identity or f"{caller.kind.value}:{caller.name}"


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()
