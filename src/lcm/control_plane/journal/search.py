"""Where a moment stands in the journal, found by halving: lines are in the order of commits, not indexed by time.

Clocks of several control planes differ a little, and a change is dated when it begins and not when it is committed, so
lines are only nearly in the order of their times. Whoever needs them exactly looks a little further: `SLACK`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.control_plane.store.cursors import journal_cursor, journal_number

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.control_plane.store.port import Recorded, Store

SLACK = timedelta(minutes=2)
_CLOSE_ENOUGH = 64
_LOOKED_AT = 3  # at each step, of which the one in the middle counts: a single wrong clock leads nobody astray


async def last_before(store: Store, topic: str, moment: datetime) -> str | None:
    """A cursor up to which all lines of the topic are older than the moment; None: there is none."""
    around = await _around(store, topic, moment)
    return None if around is None else journal_cursor(around[0])


async def first_after(store: Store, topic: str, moment: datetime) -> str | None:
    """A cursor from which on all lines of the topic are younger than the moment; None: there is none."""
    around = await _around(store, topic, moment)
    return None if around is None else journal_cursor(around[1])


async def _around(store: Store, topic: str, moment: datetime) -> tuple[int, int] | None:
    """Numbers: up to the first all is older, from the second on all is younger or was not there yet."""
    oldest = await store.journal(topics=[topic], limit=1)
    newest = await store.journal(topics=[topic], newest_first=True, limit=1)
    if not oldest or not newest:
        return None
    low, high = journal_number(oldest[0].cursor) - 1, journal_number(newest[0].cursor) + 1
    while high - low > _CLOSE_ENOUGH:
        middle = (low + high) // 2
        lines = await store.journal(
            topics=[topic], after=journal_cursor(middle), before=journal_cursor(high), limit=_LOOKED_AT
        )
        if not lines or _typical(lines) >= moment:
            high = middle + 1
        else:
            low = middle
    # Where the one in the middle was younger, those before it may not have been.
    beyond = await store.journal(topics=[topic], after=journal_cursor(high - 1), limit=_LOOKED_AT)
    return low, journal_number(beyond[-1].cursor) + 1 if beyond else high


def _typical(lines: Sequence[Recorded]) -> datetime:
    return sorted(line.at for line in lines)[len(lines) // 2]
