"""The text format of server-sent events, however its bytes are cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcm.client.events import SseMessage, SseParser, SseTooLongError

TEXT = (
    "\ufeffretry: 2000\nid: 1\n\n"
    ": a word among ourselves\n\n"
    'event: worker_changed\r\nid: 2\r\ndata: {"name":\r\ndata: "zürich"}\r\n\r\n'
    "data:no space\rid\r\r"
    "id: 3\0\nretry: soon\nunknown: x\ndata\n\n"
    "data: cut off in the mid"
).encode()
MEANING = [
    SseMessage("1", "message", None, placed=True),
    SseMessage("1", "message", None),
    SseMessage("2", "worker_changed", '{"name":\n"zürich"}', placed=True),
    SseMessage(None, "message", "no space", placed=True),
    SseMessage(None, "message", ""),
]


@given(st.lists(st.integers(0, len(TEXT)), max_size=20))
def test_the_meaning_does_not_depend_on_how_the_bytes_are_cut(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(TEXT)]
    parser = SseParser()
    found = [message for start, end in itertools.pairwise(edges) for message in parser.feed(TEXT[start:end])]
    assert found == MEANING
    assert parser.retry == 2.0


def test_the_last_id_stays_until_another_is_given() -> None:
    parser = SseParser(last_id="7")
    assert parser.feed(b"data: 1\n\n") == [SseMessage("7", "message", "1")]
    parser.forget()
    assert parser.feed(b"data: 2\n\n") == [SseMessage(None, "message", "2")]


@pytest.mark.parametrize("endless", [b"x" * 101, b"data: 1\n" * 20], ids=["line", "event"])
def test_an_endless_event_is_cut_off(endless: bytes) -> None:
    with pytest.raises(SseTooLongError):
        SseParser(largest=100).feed(endless)
