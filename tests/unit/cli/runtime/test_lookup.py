"""Lookup of resources by name, id or unique prefix."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lcm.cli.errors import CommandError
from lcm.cli.runtime.lookup import Candidate, find_booking, find_lablet, pick_candidate, worker_candidates
from lcm.model.booking.record import BookingStatus
from tests.support.records.lablet_records import a_lablet
from tests.support.records.workers import a_worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

FLEET = [
    Candidate("w-aa1", "alpha", alias="i-1"),
    Candidate("w-ab2", "alphabet"),
    Candidate("w-cc3", "beta-1"),
    Candidate("w-cd4", "beta-2"),
    Candidate("w-ee5", "gone", ended=True),
    Candidate("w-ef6", "gone", ended=True),
    Candidate("w-gg7", "beta-2", ended=True),
    Candidate("w-hh8", "delta-3", ended=True),
    Candidate("w-ii9", "delta-30"),
]


def meant(text: str) -> str:
    return pick_candidate(text, FLEET, "worker", "lcm workers list")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("w-aa1", "w-aa1"),
        ("alpha", "w-aa1"),  # exact, though another name starts with it
        ("alphab", "w-ab2"),
        ("w-ab", "w-ab2"),
        ("i-1", "w-aa1"),
        ("beta-2", "w-cd4"),  # the active one
        ("gone", "w-ee5"),  # the newest of the terminated ones
        ("w-gg7", "w-gg7"),
        ("delta-3", "w-hh8"),  # exact: delta-30 is another one, which a reset would hit
        ("delta", "w-ii9"),
    ],
)
def test_matches(text: str, found: str) -> None:
    assert meant(text) == found


def test_ambiguous_matches_are_listed() -> None:
    with pytest.raises(CommandError, match=r"'beta' matches 2 workers: beta-1 \(w-cc3\), beta-2 \(w-cd4\)"):
        meant("beta")


def test_a_typo_suggests_similar_names() -> None:
    with pytest.raises(CommandError, match="no worker 'bta-1'; did you mean beta-1 or beta-2"):
        meant("bta-1")
    with pytest.raises(CommandError, match="lcm workers list lists all"):
        meant("zzz")


def test_many_matches_are_truncated() -> None:
    many = [Candidate(f"w-{number}", f"lab-{number:02}") for number in range(30)]
    with pytest.raises(CommandError, match=r"matches 30 workers: lab-00 .* and 22 more"):
        pick_candidate("lab", many, "worker", "")


def test_workers_as_candidates() -> None:
    ended = a_worker(id="w-2", status="TERMINATED")
    assert worker_candidates([a_worker(instance_id="i-9"), ended]) == [
        Candidate("w-1", "alpha", False, "i-9"),
        Candidate("w-2", "alpha", True, None),
    ]


class Listed:
    """A list of a client: everything that it has, whatever is asked for."""

    def __init__(self, *items: Any) -> None:
        self._items = items

    async def list(self, **_: Any) -> AsyncIterator[Any]:
        for each in self._items:
            yield each


async def test_of_two_teams_with_one_name_none_is_guessed() -> None:
    """Names are unique within a team, and what is found may be ended next."""
    lablets = Listed(*(a_lablet(id=each, name="ospf-1", team=each[2:]) for each in ("l-blue", "l-red")))
    named = {"name": "monday", "status": BookingStatus.CONFIRMED}
    bookings = Listed(*(SimpleNamespace(id=each, **named) for each in ("bk-blue", "bk-red")))
    client: Any = SimpleNamespace(lablets=lablets, bookings=bookings)
    with pytest.raises(CommandError, match="several teams have a lablet ospf-1; use an id: l-blue, l-red"):
        await find_lablet(client, "ospf-1")
    with pytest.raises(CommandError, match="several teams have a booking monday; use an id: bk-blue, bk-red"):
        await find_booking(client, "monday")
    assert (await find_booking(client, "bk-red")).id == "bk-red"


async def test_a_name_that_one_lablet_still_has_is_that_one() -> None:
    old, now = a_lablet(id="l-1", name="ospf-1", status="TERMINATED"), a_lablet(id="l-2", name="ospf-1")
    client: Any = SimpleNamespace(lablets=Listed(old, now))
    assert (await find_lablet(client, "ospf-1")).id == "l-2"
