"""Asks the identity provider again which groups the person of a session has.

A refresh token is accepted once: a provider that sees it twice takes it for stolen and revokes everything. So one
control plane claims a session in the store before it asks; others wait for what it finds. A provider that refuses, or
groups that are gone, end the session. Silence does not, for an hour (`session_record.SILENCE_LIMIT`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from lcm.control_plane.auth.oidc.fetch import ProviderResponseError
from lcm.control_plane.auth.oidc.provider import TokenRefusedError, TokenSet
from lcm.control_plane.auth.oidc.sign_in import GroupsNotSentError
from lcm.control_plane.auth.oidc.verifier import NoRoleError
from lcm.control_plane.auth.roles import AccessError, Caller
from lcm.control_plane.auth.session_record import (
    SESSIONS,
    StoredSession,
    is_unconfirmed,
    open_token,
    put_session,
    seal_grant,
)
from lcm.control_plane.records.kinds import AUDIT
from lcm.control_plane.store.port import Delete, NewJournalEntry, RevisionConflictError
from lcm.core import clock
from lcm.model.access import SessionKind
from lcm.model.audit import Actor, ActorKind, AuditEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lcm.control_plane.auth.oidc.sign_in import OidcSignIn
    from lcm.control_plane.auth.session_record import ProviderGrant
    from lcm.control_plane.secrets.encryption import SecretBox
    from lcm.control_plane.store.port import Store

log = structlog.get_logger(__name__)

RENEW_AFTER = timedelta(minutes=4)
WAIT_AFTER = timedelta(minutes=4, seconds=50)
"""From this age on a request waits for the renewal: other control planes may cache a session for 5 s more."""

SILENCE_PAUSE = timedelta(seconds=30)
UNAVAILABLE_MEMORY = timedelta(minutes=1)
"""How long after such a pause requests do not wait: while the session is used, the provider is asked in the background.

Later a silence says nothing about now, and a request waits for the provider as after any rest.
"""

CLAIM_LIFETIME = timedelta(seconds=40)  # longer than all calls of a renewal take
MAX_WAIT = 15.0
_POLL = 0.25
_REFUSALS = (401, 403)
_ACTOR = Actor(kind=ActorKind.SYSTEM, name="sign-in")


@dataclass(frozen=True, slots=True)
class _Current:
    """The person and role now, and what the provider issued; None if nothing new."""

    caller: Caller
    tokens: TokenSet | None


@dataclass(frozen=True, slots=True)
class _Over:
    """Why the session ends."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Lapsed:
    """The provider can be asked only through the person's browser."""


class SessionRenewal:
    """Renews sessions, each at most once at a time."""

    def __init__(self, store: Store, box: SecretBox, sign_in: OidcSignIn) -> None:
        self._store = store
        self._box = box
        self._sign_in = sign_in
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def close(self) -> None:
        """Wait for renewals in progress: their refresh tokens would be lost."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    async def check(self, key: str, grant: ProviderGrant, *, may_wait: bool) -> bool:
        """Renew a session that is due; returns whether it must be read again, because this waited for the result."""
        age = clock.now() - grant.checked_at
        if age < RENEW_AFTER:
            return False
        task = self._start(key)
        if not may_wait or age < WAIT_AFTER or (_is_silent(grant) and not is_unconfirmed(grant)):
            return False
        # The task itself is not awaited: a request that is given up must not lose a refresh token.
        await asyncio.wait({task}, timeout=MAX_WAIT)
        return True

    def _start(self, key: str) -> asyncio.Task[None]:
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.get_running_loop().create_task(self._renew(key))
            task.add_done_callback(lambda ended: self._ended(key, ended))
        return task

    def _ended(self, key: str, task: asyncio.Task[None]) -> None:
        del self._tasks[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("a session could not be renewed", session=key, error=str(error))

    async def _renew(self, key: str) -> None:
        claimed = await self._claim(key)
        if claimed is None:
            return
        try:
            found = await self._ask(key, claimed)
        except (ProviderResponseError, AccessError, TokenRefusedError) as error:
            log.warning("identity provider did not confirm a session", session=key, reason=str(error))
            await self._write_silence(key)
            return
        if isinstance(found, _Over):
            await self._end(key, found.reason)
        elif isinstance(found, _Lapsed):
            await self._write_lapse(key)
        else:
            await self._write(key, found)

    async def _claim(self, key: str) -> StoredSession | None:
        """The session, if it is for this control plane to renew it; None if another has, or nobody may now."""
        while (stored := await self._store.get(SESSIONS, key)) is not None:
            session, now = StoredSession.model_validate_json(stored.body), clock.now()
            grant = session.grant
            if grant is None or grant.lapsed or now - grant.checked_at < RENEW_AFTER:
                return None
            if grant.silent_until is not None and now < grant.silent_until:
                return None
            if grant.renewing_until is not None and now < grant.renewing_until:
                await asyncio.sleep(_POLL)  # another one asks: its result counts for all
                continue
            changed = grant.model_copy(update={"renewing_until": now + CLAIM_LIFETIME})
            try:
                await self._store.commit([put_session(key, _with(session, changed), stored.revision)])
            except RevisionConflictError:
                continue
            return session
        return None

    async def _ask(self, key: str, session: StoredSession) -> _Current | _Over | _Lapsed:
        """What the provider says now; raises if it says nothing that counts."""
        assert session.grant is not None
        try:
            found = await self._identify(key, session.grant)
        except GroupsNotSentError as error:
            if session.kind is SessionKind.BROWSER:
                return _Lapsed()
            return _Over(f"LCM cannot read the groups again: {error}")
        except NoRoleError as error:
            return _Over(f"no role any more: the claim {error.claim} holds {', '.join(error.groups[:20]) or 'nothing'}")
        except TokenRefusedError as error:
            if error.code != "invalid_grant":
                raise  # about LCM itself, not about the person
            return _Over("the identity provider has ended it")
        except ProviderResponseError as error:
            if error.status not in _REFUSALS:
                raise
            return _Over("the identity provider has ended it")
        if found is None and session.kind is SessionKind.BROWSER:
            return _Lapsed()
        if found is None:
            return _Over("the identity provider sent no refresh token, so LCM cannot read the groups again")
        return found if found.caller.subject == session.subject else _Over("the identity provider names another person")

    async def _identify(self, key: str, grant: ProviderGrant) -> _Current | None:
        refresh_token = open_token(grant, "refresh_token", key, self._box)
        if refresh_token is not None:
            tokens = await self._sign_in.provider.refresh(refresh_token)
            try:
                return _Current(await self._sign_in.identify_again(tokens), tokens)
            except GroupsNotSentError:
                if tokens.refresh_token is not None:  # the session ends or lapses: nobody will use it
                    self._sign_in.give_back(tokens.refresh_token)
                raise
            except (ProviderResponseError, AccessError) as error:
                # The old refresh token is used up: without the new one the session could not be renewed later.
                await self._keep_tokens(key, tokens)
                if isinstance(error, ProviderResponseError):
                    # Even a refusal: the refresh has just confirmed the session. A proxy may refuse the rest.
                    raise ProviderResponseError(str(error)) from error
                raise
        access_token = open_token(grant, "access_token", key, self._box)
        if access_token is None or grant.access_expires_at is None or grant.access_expires_at <= clock.now():
            return None
        return _Current(await self._sign_in.identify_again(TokenSet(None, access_token, None, None)), None)

    async def _write(self, key: str, found: _Current) -> None:
        def renewed(session: StoredSession) -> StoredSession:
            caller = found.caller
            changes = {"role": caller.role, "name": caller.name, "groups": caller.groups, "email": caller.email}
            return _with(session.model_copy(update=changes), self._next_grant(key, session, found.tokens, checked=True))

        def audit(session: StoredSession) -> list[NewJournalEntry]:
            change = f"{session.role or 'no role'} → {found.caller.role or 'no role'}"
            changed[:] = [] if session.role is found.caller.role else [change]
            return [_session_entry("role_changed", session, f"{each} for the whole fleet") for each in changed]

        changed: list[str] = []
        await self._update(key, renewed, found.tokens, audit)
        for change in changed:
            log.info("role changed", name=found.caller.name, identity=found.caller.identity, change=change)

    async def _keep_tokens(self, key: str, tokens: TokenSet) -> None:
        def kept(session: StoredSession) -> StoredSession:
            return _with(session, self._next_grant(key, session, tokens, checked=False))

        await self._update(key, kept, tokens)

    async def _write_silence(self, key: str) -> None:
        def silent(session: StoredSession) -> StoredSession:
            assert session.grant is not None
            changes = {"renewing_until": None, "silent_until": clock.now() + SILENCE_PAUSE}
            return _with(session, session.grant.model_copy(update=changes))

        await self._update(key, silent, None)

    async def _write_lapse(self, key: str) -> None:
        def lapsed(session: StoredSession) -> StoredSession:
            assert session.grant is not None
            return _with(session, session.grant.model_copy(update={"renewing_until": None, "lapsed": True}))

        await self._update(key, lapsed, None)

    def _next_grant(self, key: str, session: StoredSession, tokens: TokenSet | None, *, checked: bool) -> ProviderGrant:
        assert session.grant is not None
        before = session.grant
        grant = before.model_copy(update={"renewing_until": None, "silent_until": None})
        if tokens is not None:
            sealed = seal_grant(tokens, key, self._box, before.checked_at)
            # A provider that does not replace the refresh token sends none; the same goes for the ID token.
            grant = sealed.model_copy(
                update={
                    "refresh_token": sealed.refresh_token or before.refresh_token,
                    "id_token": sealed.id_token or before.id_token,
                }
            )
        return grant.model_copy(update={"checked_at": clock.now()}) if checked else grant

    async def _update(
        self,
        key: str,
        change: Callable[[StoredSession], StoredSession],
        issued: TokenSet | None,
        audit: Callable[[StoredSession], Sequence[NewJournalEntry]] = lambda _: (),
    ) -> None:
        """Change a session whatever else is written to it meanwhile; give back what was issued if it has ended."""
        while (stored := await self._store.get(SESSIONS, key)) is not None:
            session = StoredSession.model_validate_json(stored.body)
            try:
                await self._store.commit([put_session(key, change(session), stored.revision)], entries=audit(session))
            except RevisionConflictError:
                continue
            return
        if issued is not None and issued.refresh_token is not None:
            self._sign_in.give_back(issued.refresh_token)

    async def _end(self, key: str, reason: str) -> None:
        while (stored := await self._store.get(SESSIONS, key)) is not None:
            session = StoredSession.model_validate_json(stored.body)
            line = _session_entry("session_ended", session, reason)
            try:
                await self._store.commit([Delete(SESSIONS, key, stored.revision)], entries=[line])
            except RevisionConflictError:
                continue
            log.info("session ended", name=session.name, identity=session.caller.identity, reason=reason)
            return


def _is_silent(grant: ProviderGrant) -> bool:
    """Whether the provider did not respond just now, so that a request need not wait to learn it again."""
    return grant.silent_until is not None and clock.now() < grant.silent_until + UNAVAILABLE_MEMORY


def _session_entry(action: str, session: StoredSession, reason: str) -> NewJournalEntry:
    """An entry of the audit about the person of a session."""
    now = clock.now()
    details = {"identity": session.caller.identity, "address": session.address}
    entry = AuditEntry(at=now, actor=_ACTOR, action=action, subject=session.name, reason=reason, details=details)
    return NewJournalEntry(AUDIT, entry.subject, entry.model_dump_json().encode(), now)


def _with(session: StoredSession, grant: ProviderGrant) -> StoredSession:
    return session.model_copy(update={"grant": grant})
