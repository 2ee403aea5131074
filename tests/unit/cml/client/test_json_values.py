"""Values of others are checked before they are used."""

from __future__ import annotations

from typing import Any

import pytest

from lcm.cml.client.json_values import (
    DEEPEST,
    Misshapen,
    maybe_count,
    maybe_flag,
    maybe_number,
    maybe_text,
    parse,
    text,
)


def nested(levels: int) -> bytes:
    return b'{"a":[' * (levels // 2) + b"1" + b"]}" * (levels // 2)


def test_depth_is_bounded() -> None:
    assert parse(nested(DEEPEST))
    for levels in (DEEPEST + 2, 100_000):
        with pytest.raises(Misshapen):
            parse(nested(levels))


@pytest.mark.parametrize("body", [b"", b"{", b"NaN", b"[Infinity]", b'{"a": -Infinity}', b"\xff", b"1" * 5000, b"{}x"])
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(Misshapen, match="not JSON"):
        parse(body)


@pytest.mark.parametrize("value", [None, True, "7", [], {}, 10**400, parse(b"1e999")])
def test_what_is_no_number_is_unknown(value: Any) -> None:
    assert maybe_number({"a": value}, "a") is None
    assert maybe_count({"a": value}, "a") is None


def test_numbers_may_come_as_fractions() -> None:
    assert maybe_count({"a": 68719476736.0}, "a") == 64 * 1024**3
    assert maybe_number({}, "a") is None


def test_words_and_verdicts_are_of_their_kind_or_unknown() -> None:
    assert maybe_text({"a": 1}, "a") is None
    assert maybe_flag({"a": "true"}, "a") is None
    assert text({}, "a", "default") == "default"
    with pytest.raises(Misshapen, match="a is a number, not a string"):
        text({"a": 1}, "a", "default")
