"""Values of others are checked before they are used."""

from __future__ import annotations

from typing import Any

import pytest

from lcm.cml.client.json_values import (
    MAX_DEPTH,
    MalformedResponseError,
    get_text,
    optional_bool,
    optional_int,
    optional_number,
    optional_text,
    parse_json,
)


def nested(levels: int) -> bytes:
    return b'{"a":[' * (levels // 2) + b"1" + b"]}" * (levels // 2)


def test_depth_is_bounded() -> None:
    assert parse_json(nested(MAX_DEPTH))
    for levels in (MAX_DEPTH + 2, 100_000):
        with pytest.raises(MalformedResponseError):
            parse_json(nested(levels))


@pytest.mark.parametrize("body", [b"", b"{", b"NaN", b"[Infinity]", b'{"a": -Infinity}', b"\xff", b"1" * 5000, b"{}x"])
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedResponseError, match="not JSON"):
        parse_json(body)


@pytest.mark.parametrize("value", [None, True, "7", [], {}, 10**400, parse_json(b"1e999")])
def test_what_is_no_number_is_unknown(value: Any) -> None:
    assert optional_number({"a": value}, "a") is None
    assert optional_int({"a": value}, "a") is None


def test_numbers_may_come_as_fractions() -> None:
    assert optional_int({"a": 68719476736.0}, "a") == 64 * 1024**3
    assert optional_number({}, "a") is None


def test_words_and_verdicts_are_of_their_kind_or_unknown() -> None:
    assert optional_text({"a": 1}, "a") is None
    assert optional_bool({"a": "true"}, "a") is None
    assert get_text({}, "a", "default") == "default"
    with pytest.raises(MalformedResponseError, match="a is a number, not a string"):
        get_text({"a": 1}, "a", "default")
