"""Wrong codes for a seat link, by address: counted in the store, so that all control planes count together.

Only links that exist have a record, one each, with the addresses that failed last. So whoever guesses cannot fill the
store, however many addresses they have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pydantic import Field

from lcm.control_plane.auth.rate_limit import client_key
from lcm.control_plane.records.kinds import SEAT_TRIES
from lcm.control_plane.store.port import Put
from lcm.model.base import Record

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.control_plane.store.port import Store

MAX_TRIES: Final = 5
TRIES_WINDOW_SECONDS: Final = 900.0
"""So long a link is refused for an address after so many codes that were wrong."""
MAX_ADDRESSES_PER_LINK: Final = 200


class _StoredTries(Record):
    """When wrong codes came from each address, in seconds since 1970; the address that failed last is the last."""

    failed_at: dict[str, tuple[float, ...]] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LinkTries:
    """The wrong codes for one link, as they were read."""

    link_id: str
    revision: int | None
    failed_at: dict[str, tuple[float, ...]]

    def wait(self, address: str, now: datetime) -> int:
        """For how many whole seconds the link is refused there; 0 if it may be tried."""
        recent = self._recent(client_key(address), now)
        return 0 if len(recent) < MAX_TRIES else max(1, math.ceil(recent[0] + TRIES_WINDOW_SECONDS - now.timestamp()))

    def failed(self, address: str, now: datetime) -> Put:
        """The write of one more wrong code."""
        client, at = client_key(address), now.timestamp()
        others = {each: times for each in self.failed_at if each != client and (times := self._recent(each, now))}
        kept = dict(list(others.items())[1 - MAX_ADDRESSES_PER_LINK :])
        kept[client] = (*self._recent(client, now), at)[-MAX_TRIES:]
        body = _StoredTries(failed_at=kept).model_dump_json().encode()
        return Put(SEAT_TRIES, self.link_id, body, self.revision, {"expires_at": at + TRIES_WINDOW_SECONDS})

    def _recent(self, client: str, now: datetime) -> tuple[float, ...]:
        since = now.timestamp() - TRIES_WINDOW_SECONDS
        return tuple(each for each in self.failed_at.get(client, ()) if each > since)


async def read_tries(store: Store, link_id: str) -> LinkTries:
    """The wrong codes for a link until now."""
    stored = await store.get(SEAT_TRIES, link_id)
    if stored is None:
        return LinkTries(link_id, None, {})
    return LinkTries(link_id, stored.revision, _StoredTries.model_validate_json(stored.body).failed_at)
