"""How the etcd adapter reads the messages of a watch, including those that a test server rarely sends."""

from __future__ import annotations

from typing import Any

import pytest

from lcm.coordination.etcd.messages import new_message
from lcm.coordination.etcd.watch import WatchCursor, raise_if_cancelled
from lcm.core.coordination import CompactedError, CoordinationDeniedError, EventKind, WatchBatch, WatchLostError

OURS = 7


def message(revision: int, *events: int, watch_id: int = OURS, **fields: Any) -> Any:
    """A message of the server at `revision` with one event for each revision in `events`."""
    return new_message(
        "WatchResponse",
        header=new_message("ResponseHeader", revision=revision),
        watch_id=watch_id,
        events=[
            new_message("Event", kv=new_message("KeyValue", key=b"/k", value=b"v", mod_revision=event))
            for event in events
        ],
        **fields,
    )


def cursor(next_revision: int) -> WatchCursor:
    made = WatchCursor(next_revision)
    made.created(OURS)
    return made


def revisions(batch: WatchBatch | None) -> list[int]:
    assert batch is not None
    return [event.revision for event in batch.events]


def test_a_batch_goes_as_far_as_its_last_event_whatever_the_header_says() -> None:
    batch = cursor(5).take(message(99, 5, 6))
    assert revisions(batch) == [5, 6]
    assert batch is not None
    assert batch.revision == 6


def test_what_was_delivered_is_not_delivered_again() -> None:
    at = cursor(5)
    assert revisions(at.take(message(9, 3, 4, 5))) == [5]
    assert at.take(message(9, 4, 5)) is None
    assert revisions(at.take(message(9, 5, 6))) == [6]


def test_all_events_of_one_revision_are_kept() -> None:
    assert revisions(cursor(5).take(message(5, 5, 5, 5))) == [5, 5, 5]


def test_progress_of_the_watch_moves_it_on() -> None:
    at = cursor(5)
    assert at.take(message(8)) == WatchBatch((), 8)
    assert at.take(message(9, 7, 8)) is None
    assert revisions(at.take(message(9, 9))) == [9]


def test_progress_never_moves_it_back() -> None:
    at = cursor(50)
    assert at.take(message(8)) is None
    assert at.take(message(60, 40)) is None
    assert revisions(at.take(message(60, 50))) == [50]


def test_a_response_to_a_progress_request_moves_nothing() -> None:
    """Old servers send it ahead of events that came before."""
    at = cursor(5)
    assert at.take(message(100, watch_id=-1)) is None
    assert revisions(at.take(message(100, 5, 6))) == [5, 6]


def test_fragments_are_one_batch() -> None:
    at = cursor(5)
    assert at.take(message(9, 5, 6, fragment=True)) is None
    assert at.take(message(9, 6, fragment=True)) is None
    batch = at.take(message(9, 6, 7))
    assert revisions(batch) == [5, 6, 6, 6, 7]
    assert batch is not None
    assert batch.revision == 7


def test_a_last_fragment_without_events_ends_the_batch() -> None:
    at = cursor(5)
    assert at.take(message(9, 5, fragment=True)) is None
    assert revisions(at.take(message(9))) == [5]


def test_deletes_and_puts_are_distinguished() -> None:
    event = new_message("Event", type=1, kv=new_message("KeyValue", key=b"/k", mod_revision=5))
    batch = cursor(5).take(new_message("WatchResponse", watch_id=OURS, events=[event]))
    assert batch is not None
    assert [(event.kind, event.value) for event in batch.events] == [(EventKind.DELETE, b"")]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"compact_revision": 12}, CompactedError),
        ({"cancel_reason": "etcdserver: permission denied", "created": True}, CoordinationDeniedError),
        (
            {"cancel_reason": "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token"},
            CoordinationDeniedError,
        ),
        ({"cancel_reason": "etcdserver: no leader"}, WatchLostError),
        ({}, WatchLostError),
    ],
)
def test_a_cancelled_watch_ends_for_its_reason(fields: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        raise_if_cancelled(message(1, canceled=True, **fields), str)


def test_a_watch_that_is_not_cancelled_goes_on() -> None:
    raise_if_cancelled(message(1, created=True), str)
