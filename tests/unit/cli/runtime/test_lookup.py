"""What somebody means by a name, an id or the beginning of one."""

from __future__ import annotations

import pytest

from lcm.cli.errors import CommandError
from lcm.cli.runtime.lookup import Candidate, pick_candidate, worker_candidates
from tests.support.records.workers import a_worker

FLEET = [
    Candidate("w-aa1", "alpha", other="i-1"),
    Candidate("w-ab2", "alphabet"),
    Candidate("w-cc3", "beta-1"),
    Candidate("w-cd4", "beta-2"),
    Candidate("w-ee5", "gone", over=True),
    Candidate("w-ef6", "gone", over=True),
    Candidate("w-gg7", "beta-2", over=True),
]


def meant(text: str) -> str:
    return pick_candidate(text, FLEET, "worker", "lcm workers list")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("w-aa1", "w-aa1"),
        ("alpha", "w-aa1"),  # exact, though it begins another
        ("alphab", "w-ab2"),
        ("w-ab", "w-ab2"),
        ("i-1", "w-aa1"),
        ("beta-2", "w-cd4"),  # the one that lives
        ("gone", "w-ee5"),  # the newest of those that have ended
        ("w-gg7", "w-gg7"),
    ],
)
def test_it_is_found(text: str, found: str) -> None:
    assert meant(text) == found


def test_several_are_listed() -> None:
    with pytest.raises(CommandError, match=r"'beta' fits 2 workers: beta-1 \(w-cc3\), beta-2 \(w-cd4\)"):
        meant("beta")


def test_a_slip_is_answered_with_what_was_meant() -> None:
    with pytest.raises(CommandError, match="no worker 'bta-1'; did you mean beta-1 or beta-2"):
        meant("bta-1")
    with pytest.raises(CommandError, match="lcm workers list shows them all"):
        meant("zzz")


def test_many_are_not_all_listed() -> None:
    many = [Candidate(f"w-{number}", f"lab-{number:02}") for number in range(30)]
    with pytest.raises(CommandError, match=r"fits 30 workers: lab-00 .* and 22 more"):
        pick_candidate("lab", many, "worker", "")


def test_workers_as_candidates() -> None:
    ended = a_worker(id="w-2", status="TERMINATED")
    assert worker_candidates([a_worker(instance_id="i-9"), ended]) == [
        Candidate("w-1", "alpha", False, "i-9"),
        Candidate("w-2", "alpha", True, None),
    ]
