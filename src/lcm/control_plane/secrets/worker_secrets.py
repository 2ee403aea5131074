"""Worker secrets: the license token and the CML credentials, encrypted and stored apart from the record.

The rotation of keys is here too, for these and for the secrets of subscriptions.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.kinds import SUBSCRIPTION_SECRETS, WORKER_SECRETS, WORKERS, find_all
from lcm.control_plane.secrets.encryption import DecryptionError, Secret, SecretBox, SecretLocation
from lcm.control_plane.store.port import Delete, Put
from lcm.model.access import SecretRotationResult
from lcm.model.audit import Actor, ActorKind
from lcm.model.problems import ProblemCode
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.records.unit_of_work import Transaction, UnitOfWork
    from lcm.control_plane.store.port import Kind, Store, StoredDocument


LICENSE_TOKEN = "license_token"  # noqa: S105 - the name of a field
CML_USERNAME = "cml_username"
CML_PASSWORD = "cml_password"  # noqa: S105 - the name of a field
_PAGE = 100
_MAX_LISTED = 100
_ROTATED_KINDS = (WORKER_SECRETS, SUBSCRIPTION_SECRETS)
_WITHDRAWAL_ACTOR = Actor(kind=ActorKind.SYSTEM, name="retention")


async def store_secrets(tx: Transaction, box: SecretBox, worker_id: str, changes: Mapping[str, str | None]) -> None:
    """Stage these secrets, delete those that are None, keep the rest; in the same commit as the record."""
    if not changes:
        return
    stored = await tx.store.get(WORKER_SECRETS, worker_id)
    ciphertexts: dict[str, str] = {} if stored is None else json.loads(stored.body)
    for name, text in changes.items():
        if text is None:
            ciphertexts.pop(name, None)
        else:
            ciphertexts[name] = box.encrypt(Secret(text), secret_location(worker_id, name))
    body = json.dumps(ciphertexts, sort_keys=True).encode()
    tx.stage(Put(WORKER_SECRETS, worker_id, body, None if stored is None else stored.revision))


async def withdraw_secrets(tx: Transaction, worker_id: str) -> bool:
    """Stage the deletion of all secrets of a worker that has ended; whether there were any."""
    stored = await tx.store.get(WORKER_SECRETS, worker_id)
    if stored is None:
        return False
    tx.stage(Delete(WORKER_SECRETS, worker_id, stored.revision))
    return True


async def withdraw_ended(unit_of_work: UnitOfWork) -> int:
    """Withdraw the secrets of all workers that have ended, also before an upgrade; returns the number."""
    withdrawn, after = 0, None
    while True:
        page = await unit_of_work.store.find(WORKER_SECRETS, after=after, limit=_PAGE)
        ids = [stored.id for stored in page.items]
        workers = await unit_of_work.store.get_many(WORKERS, ids)
        for worker_id in [each for each in ids if each in workers and _has_ended(workers[each])]:
            withdrawn += await unit_of_work.run(_WITHDRAWAL_ACTOR, partial(_withdraw_audited, worker_id))
        after = page.next_cursor
        if after is None:
            return withdrawn


async def _withdraw_audited(worker_id: str, tx: Transaction) -> bool:
    withdrawn = await withdraw_secrets(tx, worker_id)
    if withdrawn:
        tx.audit("secrets_withdrawn", worker_id, "the worker is TERMINATED")
    return withdrawn


def _has_ended(stored: StoredDocument) -> bool:
    return bool(json.loads(stored.body)["status"] == WorkerStatus.TERMINATED.value)


async def read_secret(store: Store, box: SecretBox, worker_id: str, name: str) -> Secret:
    """One secret in plaintext, for the controller only."""
    worker = await store.get(WORKERS, worker_id)
    stored = await store.get(WORKER_SECRETS, worker_id)
    ciphertexts: dict[str, str] = {} if stored is None else json.loads(stored.body)
    if worker is not None and _has_ended(worker):
        raise ProblemError(ProblemCode.NOT_FOUND, f"worker {worker_id} is TERMINATED: its secrets are withdrawn")
    if name not in ciphertexts:
        raise ProblemError(ProblemCode.NOT_FOUND, f"worker {worker_id} has no {name.replace('_', ' ')}")
    return box.decrypt(ciphertexts[name], secret_location(worker_id, name))


async def find_account_owners(store: Store) -> tuple[str, ...]:
    """The workers that have CML credentials of their own. Nothing is decrypted."""
    return tuple(
        [stored.id async for stored in find_all(store, WORKER_SECRETS) if CML_USERNAME in json.loads(stored.body)]
    )


async def is_stored_secret(store: Store, box: SecretBox, worker_id: str, name: str, value: str) -> bool:
    """Whether a worker has this secret. One that cannot be read is another one."""
    try:
        stored = await read_secret(store, box, worker_id, name)
    except (ProblemError, DecryptionError):
        return False
    return stored.reveal() == value


def secret_location(worker_id: str, name: str) -> SecretLocation:
    """The location of a worker's secret."""
    return SecretLocation(WORKER_SECRETS.name, worker_id, name)


@dataclass(slots=True)
class _RotationCounts:
    rotated: int = 0
    already: int = 0
    unreadable: list[str] = field(default_factory=list)

    def add(self, other: _RotationCounts) -> None:
        self.rotated += other.rotated
        self.already += other.already
        self.unreadable += other.unreadable


async def rotate_secrets(context: ControlPlaneContext, actor: Actor) -> SecretRotationResult:
    """Re-encrypt all stored secrets with the first key, page by page. A repeated call finds nothing left to do.

    A page is one commit, guarded by the revisions it was read with. If a secret is entered meanwhile, the page is read
    again; if that write commits later, the writer reads again. No secret is lost.
    """
    total = _RotationCounts()
    for kind in _ROTATED_KINDS:
        after: str | None = None
        while True:
            page = await context.store.find(kind, after=after, limit=_PAGE)
            total.add(await _rotate_page(context, actor, kind, [stored.id for stored in page.items]))
            after = page.next_cursor
            if after is None:
                break
    return SecretRotationResult(
        rotated=total.rotated, already=total.already, unreadable=tuple(total.unreadable[:_MAX_LISTED])
    )


async def count_rotation(context: ControlPlaneContext) -> SecretRotationResult:
    """What a rotation would do now. Nothing is changed."""
    counts = _RotationCounts()
    for kind in _ROTATED_KINDS:
        async for stored in find_all(context.store, kind):
            _reencrypt(context.secret_box, kind, stored, counts)
    return SecretRotationResult(
        rotated=counts.rotated, already=counts.already, unreadable=tuple(counts.unreadable[:_MAX_LISTED])
    )


async def _rotate_page(context: ControlPlaneContext, actor: Actor, kind: Kind, ids: Sequence[str]) -> _RotationCounts:
    async def attempt(tx: Transaction) -> _RotationCounts:
        counts = _RotationCounts()
        for stored in (await tx.store.get_many(kind, ids)).values():
            _rotate_document(tx, context.secret_box, kind, stored, counts)
        if counts.rotated:
            tx.audit("secrets_rotated", "secrets", rotated=counts.rotated, key=context.secret_box.key_id)
        return counts

    return await context.unit_of_work.run(actor, attempt)


def _rotate_document(
    tx: Transaction, box: SecretBox, kind: Kind, stored: StoredDocument, counts: _RotationCounts
) -> None:
    after = _reencrypt(box, kind, stored, counts)
    if after != json.loads(stored.body):
        body = json.dumps(after, sort_keys=True).encode()
        tx.stage(Put(kind, stored.id, body, stored.revision))


def _reencrypt(box: SecretBox, kind: Kind, stored: StoredDocument, counts: _RotationCounts) -> dict[str, str]:
    """The secrets of a record, encrypted with the first key. Those that cannot be decrypted stay as they are."""
    ciphertexts: dict[str, str] = json.loads(stored.body)
    for name, ciphertext in sorted(ciphertexts.items()):
        if not box.needs_rotation(ciphertext):
            counts.already += 1
            continue
        location = SecretLocation(kind.name, stored.id, name)
        try:
            ciphertexts[name] = box.rotate(ciphertext, location)
        except DecryptionError:
            counts.unreadable.append(str(location))
        else:
            counts.rotated += 1
    return ciphertexts
