"""Seat links: each opens one lablet for whoever holds it, until it expires or is revoked.

A link has an id and a code of 256 random bits, of which only a hash is stored: nobody can make one up, and nobody who
reads the store can use one. The code is in the fragment of the address (after `#`), so that it is in no log, and a
link preview, which sends a GET, has no effect. Which lablet it opens and until when is in the store: any control plane
opens a link of any other, and a revocation holds everywhere at once.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.idempotency import find_response, replace_response
from lcm.control_plane.records.kinds import SEAT_LINKS, find_all
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.secrets.encryption import Secret
from lcm.control_plane.store.port import Put, Sort, Where
from lcm.core import clock
from lcm.model.booking.failed_seats import can_be_made_anew
from lcm.model.formatting import format_instant
from lcm.model.lablet.seat_link import SeatLink
from lcm.model.lablet.status import FINAL_LABLET_STATUSES
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from lcm.control_plane.auth.roles import HasActor
    from lcm.control_plane.records.idempotency import IdempotencyKey
    from lcm.control_plane.records.unit_of_work import Transaction, UnitOfWork
    from lcm.control_plane.store.port import FieldValue, Store, StoredDocument
    from lcm.model.lablet.record import Lablet

SEAT_PATH: Final = "/seat"
DEFAULT_LINK_AGE: Final = timedelta(hours=24)
MAX_LINK_AGE: Final = timedelta(days=30)
MAX_LINKS_PER_LABLET: Final = 50
SEAT_SESSION_MAX_AGE: Final = timedelta(days=7)
_CODE_BYTES = 32
_LABLETS_AT_ONCE = 100
_CODE_PATTERN = re.compile(r"([a-z0-9-]{1,32})\.([0-9a-f]{64})")


class StoredSeatLink(SeatLink):
    """A link as it is stored."""

    digest: str
    team: str | None = None
    """The team of the lablet when the link was made; None in links of older versions."""

    def opens_with(self, code: str) -> bool:
        """Whether this is its code. The time it takes reveals nothing about it."""
        return hmac.compare_digest(self.digest, _digest(code))

    @property
    def shown(self) -> SeatLink:
        """The link as it is listed."""
        return SeatLink.model_validate(self.model_dump(exclude={"digest", "team"}))


@dataclass(frozen=True, slots=True)
class SeatLinkPage:
    """Links, and where the next page begins; None at the end."""

    items: Sequence[SeatLink]
    next_cursor: str | None


class SeatLinkService:
    """Creates, lists and revokes links, for people who may change the lablet."""

    def __init__(self, store: Store, unit_of_work: UnitOfWork) -> None:
        self._store = store
        self._unit_of_work = unit_of_work

    async def create(
        self, caller: HasActor, managed: Lablet, expires_at: datetime | None, key: IdempotencyKey | None = None
    ) -> tuple[SeatLink, Secret]:
        """A new link, and its path with the code, for a lablet that the caller manages as it was read.

        A repetition, whose first answer was lost, makes another link and revokes the first, whose code nobody has.
        """
        link_id, code = clock.new_id("seat"), clock.rng().randbytes(_CODE_BYTES).hex()
        until = _checked_expiry(expires_at, clock.now())

        async def attempt(tx: Transaction) -> StoredSeatLink:
            lablet = await tx.lablet(managed.id)
            if lablet.team != managed.team:
                raise ProblemError(ProblemCode.VERSION_CONFLICT, f"{managed.name} has changed meanwhile; try again")
            if not lablet.wanted or lablet.status in FINAL_LABLET_STATUSES:
                raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, f"{lablet.name} is ending or has ended")
            unseen = await _made_before(tx, key)
            if await _full_ones(tx, [lablet.id], unseen):
                detail = f"{lablet.name} has {MAX_LINKS_PER_LABLET} seat links, which is the limit"
                raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
            await _replace(tx, key, unseen, [link_id])
            return _create(tx, lablet, link_id, code, until)

        link = await self._unit_of_work.run(caller.actor, attempt)
        return link.shown, _path(link_id, code)

    async def create_many(
        self, caller: HasActor, managed: Sequence[Lablet], expires_at: datetime, key: IdempotencyKey | None = None
    ) -> dict[str, tuple[SeatLink, Secret]]:
        """A new link for each of the lablets that may have another, by the id of the lablet; a hundred in a commit.

        One that went to another team since it was read gets none. A repetition replaces the links of the first try.
        """
        until = _checked_expiry(expires_at, clock.now())
        made: dict[str, tuple[SeatLink, Secret]] = {}
        team_of = {lablet.id: lablet.team for lablet in managed}
        for start in range(0, len(managed), _LABLETS_AT_ONCE):
            codes = {
                each.id: (clock.new_id("seat"), clock.rng().randbytes(_CODE_BYTES).hex())
                for each in managed[start : start + _LABLETS_AT_ONCE]
            }

            part = None if key is None else key.for_part(str(start))

            async def attempt(
                tx: Transaction, codes: dict[str, tuple[str, str]] = codes, part: IdempotencyKey | None = part
            ) -> list[StoredSeatLink]:
                unseen = await _made_before(tx, part)
                full = await _full_ones(tx, list(codes), unseen)
                lablets = (await tx.lablets(list(codes))).values()
                same_team = [each for each in lablets if each.team == team_of[each.id] and each.id not in full]
                open_ones = [each for each in same_team if each.wanted and each.status not in FINAL_LABLET_STATUSES]
                await _replace(tx, part, unseen, [codes[each.id][0] for each in open_ones])
                return [_create(tx, each, *codes[each.id], until) for each in open_ones]

            links = await self._unit_of_work.run(caller.actor, attempt)
            made |= {each.lablet_id: (each.shown, _path(*codes[each.lablet_id])) for each in links}
        return made

    async def page(self, lablet_id: str, *, after: str | None = None, limit: int = 100) -> SeatLinkPage:
        """The links of a lablet that are kept, the one that expires last first."""
        where, last_first = Where(any_of={"lablet_id": [lablet_id]}), Sort("expires_at", descending=True)
        page = await self._store.find(SEAT_LINKS, where, sort=last_first, after=after, limit=limit)
        links = [read_or_skip(each, StoredSeatLink, "seat link") for each in page.items]
        return SeatLinkPage([link.shown for link in links if link is not None], page.next_cursor)

    async def revoke(self, caller: HasActor, lablet_id: str, link_id: str) -> SeatLink:
        """Revoke a link: the sessions and streams that it opened end, on every control plane. Again changes nothing."""

        async def attempt(tx: Transaction) -> StoredSeatLink:
            stored = await tx.store.get(SEAT_LINKS, link_id)
            link = None if stored is None else StoredSeatLink.model_validate_json(stored.body)
            if stored is None or link is None or link.lablet_id != lablet_id:
                raise ProblemError(ProblemCode.NOT_FOUND, f"lablet {lablet_id} has no seat link {link_id}")
            return link if link.revoked_at is not None else _revoke(tx, link, stored.revision)

        return (await self._unit_of_work.run(caller.actor, attempt)).shown

    async def revoke_many(self, caller: HasActor, lablet_ids: Sequence[str]) -> int:
        """Revoke every link of these lablets; returns how many. Again it revokes what is left."""
        revoked = 0
        for lablet_id in lablet_ids:
            if (await self.page(lablet_id, limit=1)).items:
                revoked += await self._unit_of_work.run(caller.actor, partial(revoke_all, lablet_id=lablet_id))
        return revoked


async def revoke_all(tx: Transaction, lablet_id: str) -> int:
    """Revoke every link of a lablet; returns how many."""
    revoked = 0
    async for stored in find_all(tx.store, SEAT_LINKS, Where(any_of={"lablet_id": [lablet_id]})):
        link = read_or_skip(stored, StoredSeatLink, "seat link")
        if link is not None and link.revoked_at is None:
            _revoke(tx, link, stored.revision)
            revoked += 1
    return revoked


async def _made_before(tx: Transaction, key: IdempotencyKey | None) -> Mapping[str, StoredDocument]:
    """The links that were made for this key, by id. Codes are not stored, so they cannot be shown again."""
    made = await find_response(tx.store, key)
    return {} if made is None else await tx.store.get_many(SEAT_LINKS, json.loads(made))


async def _full_ones(tx: Transaction, lablet_ids: list[str], unseen: Mapping[str, StoredDocument]) -> set[str]:
    """The lablets that may not have another link, not counting those that it replaces, which nobody could use."""
    links = [read_or_skip(each, StoredSeatLink, "seat link") for each in unseen.values()]
    replaced = Counter(link.lablet_id for link in links if link is not None)
    counted = await tx.store.count_by(SEAT_LINKS, ["lablet_id"], Where(any_of={"lablet_id": lablet_ids}))
    # Replaced links are kept too, so there is a limit to these as well.
    left = {values[0]: count - min(replaced[str(values[0])], MAX_LINKS_PER_LABLET) for values, count, _ in counted}
    return {str(lablet_id) for lablet_id, count in left.items() if count >= MAX_LINKS_PER_LABLET}


async def _replace(
    tx: Transaction, key: IdempotencyKey | None, unseen: Mapping[str, StoredDocument], link_ids: list[str]
) -> None:
    """Revoke the links that were made for this key before, and note the new ones beside them."""
    for stored in unseen.values():
        link = read_or_skip(stored, StoredSeatLink, "seat link")
        if link is not None and link.revoked_at is None:
            _revoke(tx, link, stored.revision)
    await replace_response(tx, key, json.dumps([*unseen, *link_ids]).encode())


def _create(tx: Transaction, lablet: Lablet, link_id: str, code: str, until: datetime) -> StoredSeatLink:
    link = StoredSeatLink(
        id=link_id,
        lablet_id=lablet.id,
        created_at=tx.now,
        created_by=tx.actor.name,
        expires_at=until,
        digest=_digest(code),
        team=lablet.team,
    )
    tx.stage(put_link(link, None))
    tx.audit("seat_link_created", lablet.id, link=link_id, expires_at=until.isoformat())
    return link


def _path(link_id: str, code: str) -> Secret:
    """The path of a link, with its code."""
    return Secret(f"{SEAT_PATH}#{link_id}.{code}")


def _revoke(tx: Transaction, link: StoredSeatLink, revision: int) -> StoredSeatLink:
    revoked = link.model_copy(update={"revoked_at": tx.now, "revoked_by": tx.actor.name})
    tx.stage(put_link(revoked, revision))
    tx.audit("seat_link_revoked", link.lablet_id, link=link.id)
    return revoked


def parse_code(text: str) -> tuple[str, str] | None:
    """The id and the code in the fragment of a link; None for text of another format."""
    match = _CODE_PATTERN.fullmatch(text.strip())
    return None if match is None else (match[1], match[2])


def put_link(link: StoredSeatLink, expected: int | None) -> Put:
    """The write of a link. It is kept while sessions that it opened may need it."""
    fields: dict[str, FieldValue] = {
        "lablet_id": link.lablet_id,
        "expires_at": link.expires_at.timestamp(),
        "removed_at": (link.expires_at + SEAT_SESSION_MAX_AGE).timestamp(),
    }
    return Put(SEAT_LINKS, link.id, link.model_dump_json().encode(), expected, fields)


def why_not(link: StoredSeatLink, lablet: Lablet | None) -> str:
    """Why nobody can use what the link has opened; empty if they can. Its expiry only ends its opening."""
    moved = lablet is not None and link.team not in (None, lablet.team)
    if link.revoked_at is not None or moved:
        return "This link was revoked."
    if lablet is None or (lablet.status in FINAL_LABLET_STATUSES and not _may_come_back(lablet)):
        return "This lab has ended."
    return ""


def _may_come_back(lablet: Lablet) -> bool:
    """Whether it is a failed seat of a class that goes on: its page says what happens next."""
    return can_be_made_anew(lablet) and lablet.ends_at is not None and clock.now() < lablet.ends_at


def _checked_expiry(expires_at: datetime | None, now: datetime) -> datetime:
    if expires_at is None:
        return now + DEFAULT_LINK_AGE
    if expires_at <= now:
        raise ProblemError(ProblemCode.INVALID, f"expires_at: {format_instant(expires_at)} is not in the future")
    if expires_at > now + MAX_LINK_AGE:
        detail = f"expires_at: a link expires after {MAX_LINK_AGE.days} days at most; choose an earlier time"
        raise ProblemError(ProblemCode.INVALID, detail)
    return expires_at


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()
