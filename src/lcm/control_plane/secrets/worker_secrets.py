"""A worker's secrets: the licence token and the CML credentials, encrypted, apart from the record."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.kinds import WORKER_SECRETS
from lcm.control_plane.secrets.box import DecryptionError, Secret, SecretBox, SecretLocation
from lcm.control_plane.store.port import Put
from lcm.model.access import SecretRotationResult
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.secrets.box import SecretBox
    from lcm.control_plane.store.port import Store, StoredDocument
    from lcm.model.audit import Actor


LICENSE_TOKEN = "license_token"  # noqa: S105 - the name of a field
CML_USERNAME = "cml_username"
CML_PASSWORD = "cml_password"  # noqa: S105 - the name of a field


async def store_secrets(change: Transaction, box: SecretBox, worker_id: str, given: Mapping[str, str | None]) -> None:
    """Keep these, forget those that are None, leave the rest; in the same commit as the record."""
    if not given:
        return
    stored = await change.store.get(WORKER_SECRETS, worker_id)
    kept: dict[str, str] = {} if stored is None else json.loads(stored.body)
    for name, text in given.items():
        if text is None:
            kept.pop(name, None)
        else:
            kept[name] = box.encrypt(Secret(text), secret_location(worker_id, name))
    body = json.dumps(kept, sort_keys=True).encode()
    change.write(Put(WORKER_SECRETS, worker_id, body, None if stored is None else stored.revision))


async def read_secret(store: Store, box: SecretBox, worker_id: str, name: str) -> Secret:
    """One secret in clear, for the controller alone."""
    stored = await store.get(WORKER_SECRETS, worker_id)
    kept: dict[str, str] = {} if stored is None else json.loads(stored.body)
    if name not in kept:
        raise ProblemError(ProblemCode.NOT_FOUND, f"worker {worker_id} has no {name.replace('_', ' ')}")
    return box.decrypt(kept[name], secret_location(worker_id, name))


def secret_location(worker_id: str, name: str) -> SecretLocation:
    """Where a worker's secret belongs."""
    return SecretLocation(WORKER_SECRETS.name, worker_id, name)


_PAGE = 100
_MAX_LISTED = 100


@dataclass(slots=True)
class _RotationCounts:
    rotated: int = 0
    already: int = 0
    unreadable: list[str] = field(default_factory=list)

    def add(self, other: _RotationCounts) -> None:
        self.rotated += other.rotated
        self.already += other.already
        self.unreadable += other.unreadable


async def rotate_secrets(plane: ControlPlaneContext, actor: Actor) -> SecretRotationResult:
    """Go through all secrets, page by page; asked again it finds nothing left to do.

    A page is one commit, guarded by the revisions it was read with: if somebody enters a secret meanwhile, the page is
    read again, and if theirs is the later commit it is they who read again. Nobody's secret is lost.
    """
    total, after = _RotationCounts(), None
    while True:
        page = await plane.store.find(WORKER_SECRETS, after=after, limit=_PAGE)
        total.add(await _rotate_page(plane, actor, [stored.id for stored in page.items]))
        after = page.next_cursor
        if after is None:
            return SecretRotationResult(
                rotated=total.rotated, already=total.already, unreadable=tuple(total.unreadable[:_MAX_LISTED])
            )


async def _rotate_page(plane: ControlPlaneContext, actor: Actor, ids: Sequence[str]) -> _RotationCounts:
    async def attempt(change: Transaction) -> _RotationCounts:
        tally = _RotationCounts()
        for stored in (await change.store.get_many(WORKER_SECRETS, ids)).values():
            _rotate_document(change, plane.box, stored, tally)
        if tally.rotated:
            change.audit("secrets_rotated", "secrets", rotated=tally.rotated, key=plane.box.key_id)
        return tally

    return await plane.records.change(actor, attempt)


def _rotate_document(change: Transaction, box: SecretBox, stored: StoredDocument, tally: _RotationCounts) -> None:
    kept: dict[str, str] = json.loads(stored.body)
    after = dict(kept)
    for name, ciphertext in kept.items():
        if not box.needs_rotation(ciphertext):
            tally.already += 1
            continue
        place = secret_location(stored.id, name)
        try:
            after[name] = box.rotate(ciphertext, place)
        except DecryptionError:
            tally.unreadable.append(str(place))
        else:
            tally.rotated += 1
    if after != kept:
        body = json.dumps(after, sort_keys=True).encode()
        change.write(Put(WORKER_SECRETS, stored.id, body, stored.revision))
