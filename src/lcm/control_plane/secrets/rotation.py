"""Encrypting stored secrets anew with the first key, beside everything else that goes on."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lcm.control_plane.records.kinds import WORKER_SECRETS
from lcm.control_plane.secrets.box import DecryptionFailed
from lcm.control_plane.secrets.worker_secrets import place_of
from lcm.control_plane.store.port import Put
from lcm.model.answers import SecretsRotated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.control_plane.context import Plane
    from lcm.control_plane.records.unit_of_work import Change
    from lcm.control_plane.secrets.box import SecretBox
    from lcm.control_plane.store.port import Stored
    from lcm.model.audit import Actor

_PAGE = 100
_MOST_NAMED = 100


@dataclass(slots=True)
class _Tally:
    rotated: int = 0
    already: int = 0
    unreadable: list[str] = field(default_factory=list)

    def add(self, other: _Tally) -> None:
        self.rotated += other.rotated
        self.already += other.already
        self.unreadable += other.unreadable


async def rotate_secrets(plane: Plane, actor: Actor) -> SecretsRotated:
    """Go through all secrets, page by page; asked again it finds nothing left to do.

    A page is one commit, guarded by the revisions it was read with: if somebody enters a secret meanwhile, the page is
    read again, and if theirs is the later commit it is they who read again. Nobody's secret is lost.
    """
    total, after = _Tally(), None
    while True:
        page = await plane.store.find(WORKER_SECRETS, after=after, limit=_PAGE)
        total.add(await _rotate_page(plane, actor, [stored.id for stored in page.items]))
        after = page.next_after
        if after is None:
            return SecretsRotated(
                rotated=total.rotated, already=total.already, unreadable=tuple(total.unreadable[:_MOST_NAMED])
            )


async def _rotate_page(plane: Plane, actor: Actor, ids: Sequence[str]) -> _Tally:
    async def attempt(change: Change) -> _Tally:
        tally = _Tally()
        for stored in (await change.store.get_many(WORKER_SECRETS, ids)).values():
            _rotate_one(change, plane.box, stored, tally)
        if tally.rotated:
            change.audit("secrets_rotated", "secrets", rotated=tally.rotated, key=plane.box.key_id)
        return tally

    return await plane.records.change(actor, attempt)


def _rotate_one(change: Change, box: SecretBox, stored: Stored, tally: _Tally) -> None:
    kept: dict[str, str] = json.loads(stored.body)
    after = dict(kept)
    for name, ciphertext in kept.items():
        if not box.needs_rotation(ciphertext):
            tally.already += 1
            continue
        place = place_of(stored.id, name)
        try:
            after[name] = box.rotate(ciphertext, place)
        except DecryptionFailed:
            tally.unreadable.append(str(place))
        else:
            tally.rotated += 1
    if after != kept:
        body = json.dumps(after, sort_keys=True).encode()
        change.write(Put(WORKER_SECRETS, stored.id, body, stored.revision))
