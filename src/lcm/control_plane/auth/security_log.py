"""The security log: sign-ins, refusals, limits and reads of secrets, in the structured log and in the audit.

An attacker decides how many refusals there are, and controllers read secrets every few minutes. So the audit gets
sums: once a minute at most one entry for all refusals, with the addresses that tried most, and one line for each person
and address that signed in. Of the reads of a secret by one reader, the audit has the first in 24 hours.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from lcm.control_plane.records.kinds import AUDIT
from lcm.control_plane.store.port import NewJournalEntry, StoreError
from lcm.core import clock
from lcm.core.hosting import HostedService, cancel_and_wait
from lcm.model.audit import Actor, ActorKind, AuditEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from lcm.control_plane.auth.oidc.verifier import NoRoleError
    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.store.port import Store

log = structlog.get_logger(__name__)

FLUSH_SECONDS = 60.0
MAX_LISTED_ADDRESSES = 20
MAX_COUNTED_ADDRESSES = 10_000
MAX_PERSON_LINES = 200
MAX_LISTED_WORKERS = 100
MAX_LISTED_GROUPS = 20
READ_REPEAT_SECONDS = 24 * 3600.0
MAX_REMEMBERED_READS = 50_000
_MAX_TEXT_LENGTH = 64
_ACTOR = Actor(kind=ActorKind.SYSTEM, name="sign-in")


@dataclass(slots=True)
class _Pending:
    """What happened since the last flush."""

    refused: Counter[str] = field(default_factory=Counter)  # by address
    refused_token_ids: set[str] = field(default_factory=set)
    refused_elsewhere: int = 0  # from addresses beyond those that are counted
    limited: int = 0
    people: Counter[tuple[str, Actor, str]] = field(default_factory=Counter)  # by action, person and address
    people_omitted: int = 0
    no_role: dict[tuple[Actor, str], tuple[str, list[str]]] = field(default_factory=dict)  # claim and groups
    reads: dict[tuple[Actor, str], list[str]] = field(default_factory=dict)  # workers by reader and secret

    def __bool__(self) -> bool:
        some = self.refused or self.limited or self.people or self.no_role or self.reads or self.refused_elsewhere
        return bool(some)


class SecurityLog:
    """Takes events without waiting; `flush` writes them to the audit."""

    def __init__(self, store: Store, on_commit: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._on_commit = on_commit
        self._pending = _Pending()
        self._known_reads: OrderedDict[tuple[str, str, str], float] = OrderedDict()

    def signed_in(self, caller: Caller, address: str) -> None:
        """A person opened a session."""
        log.info(
            "signed in",
            name=caller.name,
            role=caller.role_text,
            kind=caller.kind.value,
            token_id=caller.token_id,
            subject=caller.subject,
            address=address,
        )
        self._add_person("signed_in", caller.actor, address)

    def signed_out(self, caller: Caller, address: str) -> None:
        """A person ended their session."""
        log.info("signed out", name=caller.name, token_id=caller.token_id, subject=caller.subject, address=address)
        self._add_person("signed_out", caller.actor, address)

    def no_role(self, error: NoRoleError, address: str) -> None:
        """A person with an account at the identity provider has no role here."""
        groups = [group[:_MAX_TEXT_LENGTH] for group in error.groups[:MAX_LISTED_GROUPS]]
        log.warning(
            "sign-in refused", name=error.name, subject=error.subject, claim=error.claim, groups=groups, address=address
        )
        actor = Actor(kind=ActorKind.PERSON, name=error.name, identity=f"oidc:{error.subject}")
        if (actor, address) in self._pending.no_role or len(self._pending.no_role) < MAX_PERSON_LINES:
            self._pending.no_role[actor, address[:_MAX_TEXT_LENGTH]] = (error.claim, groups)
        else:
            self._pending.people_omitted += 1

    def refused(self, address: str, token_id: str | None, path: str, reason: str | None = None) -> None:
        """A credential was not accepted."""
        log.warning("sign-in refused", address=address, token_id=token_id, path=path, reason=reason)
        pending, address = self._pending, address[:_MAX_TEXT_LENGTH]
        if address in pending.refused or len(pending.refused) < MAX_COUNTED_ADDRESSES:
            pending.refused[address] += 1
        else:
            pending.refused_elsewhere += 1
        if token_id is not None and len(pending.refused_token_ids) < MAX_LISTED_ADDRESSES:
            pending.refused_token_ids.add(token_id)

    def limited(self, address: str, token_id: str | None, retry_after: int) -> None:
        """An attempt was not looked at, because there were too many from this address."""
        log.warning("sign-ins limited", address=address, token_id=token_id, retry_after=retry_after)
        self._pending.limited += 1

    def secret_read(self, caller: Caller, worker_id: str, secret: str) -> None:
        """A controller read a secret in plain text."""
        log.info("secret read", worker=worker_id, secret=secret, by=caller.name, token_id=caller.token_id)
        key, now = (caller.identity or caller.name, secret, worker_id), clock.boottime()
        last = self._known_reads.get(key)
        if last is not None and now - last < READ_REPEAT_SECONDS:
            return
        self._known_reads[key] = now
        self._known_reads.move_to_end(key)
        if len(self._known_reads) > MAX_REMEMBERED_READS:
            self._known_reads.popitem(last=False)
        self._pending.reads.setdefault((caller.actor, secret), []).append(worker_id)

    async def flush(self) -> None:
        """Write what happened since the last flush. If the store fails, the next flush includes it."""
        pending, self._pending = self._pending, _Pending()
        if not pending:
            return
        now = clock.now()
        entries = [
            NewJournalEntry(AUDIT, entry.subject, entry.model_dump_json().encode(), now)
            for entry in _audit_entries(pending, now)
        ]
        try:
            await self._store.commit([], entries=entries)
        except StoreError as error:
            log.warning("the security log could not be written; will retry", error=str(error))
            self._merge(pending)
            return
        except asyncio.CancelledError:
            self._merge(pending)  # it may have been written: twice is better than not at all
            raise
        self._on_commit()

    def _add_person(self, action: str, actor: Actor, address: str) -> None:
        key, people = (action, actor, address[:_MAX_TEXT_LENGTH]), self._pending.people
        if key in people or len(people) < MAX_PERSON_LINES:
            people[key] += 1
        else:
            self._pending.people_omitted += 1

    def _merge(self, earlier: _Pending) -> None:
        later, self._pending = self._pending, earlier
        earlier.refused.update(later.refused)
        earlier.refused_token_ids |= later.refused_token_ids
        earlier.refused_elsewhere += later.refused_elsewhere
        earlier.limited += later.limited
        earlier.people.update(later.people)
        earlier.people_omitted += later.people_omitted
        earlier.no_role.update(later.no_role)
        for key, workers in later.reads.items():
            earlier.reads.setdefault(key, []).extend(workers)


def _audit_entries(pending: _Pending, now: datetime) -> Iterator[AuditEntry]:
    for (action, actor, address), times in pending.people.items():
        yield AuditEntry(
            at=now, actor=actor, action=action, subject=actor.name, details={"address": address, "times": times}
        )
    for (actor, address), (claim, groups) in pending.no_role.items():
        yield AuditEntry(
            at=now,
            actor=actor,
            action="sign_in_refused",
            subject=actor.name,
            reason=f"no role here: the claim {claim} holds {', '.join(groups) or 'nothing'}",
            details={"address": address, "claim": claim, "groups": groups},
        )
    if pending.people_omitted:
        reason = f"{pending.people_omitted} more sign-ins and sign-outs within a minute; the structured log has them"
        yield AuditEntry(at=now, actor=_ACTOR, action="sign_ins_omitted", subject="sign-in", reason=reason)
    refused = pending.refused.total() + pending.refused_elsewhere
    if refused or pending.limited:
        most = pending.refused.most_common(MAX_LISTED_ADDRESSES)
        listed = sum(times for _, times in most)
        yield AuditEntry(
            at=now,
            actor=_ACTOR,
            action="sign_ins_refused",
            subject="sign-in",
            reason=f"{refused} refused, {pending.limited} limited",
            details={
                "addresses": dict(most),
                "elsewhere": refused - listed,
                "token_ids": sorted(pending.refused_token_ids),
            },
        )
    for (reader, secret), workers in pending.reads.items():
        for first in range(0, len(workers), MAX_LISTED_WORKERS):
            chunk = workers[first : first + MAX_LISTED_WORKERS]
            details = {"secret": secret, "workers": chunk}
            yield AuditEntry(at=now, actor=reader, action="secrets_read", subject="secrets", details=details)


class SecurityLogWriter(HostedService):
    """Flushes the security log once a minute, and at the end."""

    def __init__(self, security_log: SecurityLog, *, every: float = FLUSH_SECONDS) -> None:
        super().__init__("security log")
        self._log = security_log
        self._every = every

    async def start(self) -> None:
        self._spawn(self._run(), "flush")

    async def stop(self) -> None:
        await cancel_and_wait(list(self._background))
        await self._log.flush()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            await self._log.flush()
