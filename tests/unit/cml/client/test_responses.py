"""Responses of CML servers: values are checked before they are used, and every failure has its error."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcm.cml.client.responses import (
    MAX_DEPTH,
    CMLResponse,
    MalformedResponseError,
    RawResponse,
    get_text,
    optional_bool,
    optional_int,
    optional_number,
    optional_text,
    parse_json,
    parse_response,
)
from lcm.cml.errors import (
    CMLAuthenticationError,
    CMLConflictError,
    CMLError,
    CMLInvalidRequestError,
    CMLNotFoundError,
    CMLNotReadyError,
    CMLOutcomeUnknownError,
    CMLProtocolError,
    CMLThrottledError,
    CMLUnauthorizedError,
)


def nested(levels: int) -> bytes:
    return b'{"a":[' * (levels // 2) + b"1" + b"]}" * (levels // 2)


def test_depth_is_bounded() -> None:
    assert parse_json(nested(MAX_DEPTH))
    for levels in (MAX_DEPTH + 2, 100_000):
        with pytest.raises(MalformedResponseError):
            parse_json(nested(levels))


@pytest.mark.parametrize("body", [b"", b"{", b"NaN", b"[Infinity]", b'{"a": -Infinity}', b"\xff", b"1" * 5000, b"{}x"])
def test_invalid_json_is_rejected(body: bytes) -> None:
    with pytest.raises(MalformedResponseError, match="not JSON"):
        parse_json(body)


@pytest.mark.parametrize("value", [None, True, "7", [], {}, 10**400, parse_json(b"1e999")])
def test_values_that_are_not_numbers_are_none(value: Any) -> None:
    assert optional_number({"a": value}, "a") is None
    assert optional_int({"a": value}, "a") is None


def test_integers_may_be_sent_as_floats() -> None:
    assert optional_int({"a": 68719476736.0}, "a") == 64 * 1024**3
    assert optional_number({}, "a") is None


def test_optional_strings_and_booleans_of_other_types_are_none() -> None:
    assert optional_text({"a": 1}, "a") is None
    assert optional_bool({"a": "true"}, "a") is None
    assert get_text({}, "a", "default") == "default"
    with pytest.raises(MalformedResponseError, match="a is a number, not a string"):
        get_text({"a": 1}, "a", "default")


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, CMLInvalidRequestError),
        (401, CMLUnauthorizedError),
        (403, CMLAuthenticationError),
        (404, CMLNotFoundError),
        (409, CMLConflictError),
        (422, CMLInvalidRequestError),
        (429, CMLThrottledError),
        (500, CMLProtocolError),
        (502, CMLNotReadyError),
        (503, CMLNotReadyError),
        (504, CMLNotReadyError),
        (301, CMLProtocolError),
        (101, CMLProtocolError),
    ],
)
def test_each_http_status_maps_to_an_error(status: int, error: type[CMLError]) -> None:
    response = RawResponse(
        status, "application/json", b'{"code": 1, "description": "because"}', "https://elsewhere.invalid/"
    )
    with pytest.raises(error) as caught:
        parse_response("10.0.0.1", "GET", response)
    assert type(caught.value) is error
    assert caught.value.address == "10.0.0.1"
    assert ("because" in caught.value.cause) is (status not in (502, 503, 504, 301))


@pytest.mark.parametrize(
    ("method", "status", "error"),
    [
        ("GET", 200, CMLNotReadyError),
        ("GET", 403, CMLNotReadyError),
        ("GET", 404, CMLNotReadyError),
        ("GET", 500, CMLNotReadyError),
        ("DELETE", 404, CMLNotReadyError),
        ("DELETE", 200, CMLOutcomeUnknownError),
        ("PUT", 500, CMLOutcomeUnknownError),
        ("POST", 413, CMLInvalidRequestError),
        ("POST", 429, CMLThrottledError),
    ],
)
def test_a_web_page_is_not_a_response_of_cml(method: str, status: int, error: type[CMLError]) -> None:
    with pytest.raises(error) as caught:
        parse_response("10.0.0.1", method, RawResponse(status, "text/html; charset=utf-8", b"<html>"))
    assert type(caught.value) is error


def test_only_a_404_of_cml_means_not_found() -> None:
    for kind in ("text/plain", ""):
        with pytest.raises(CMLProtocolError, match="does not prove that the object is missing"):
            parse_response("10.0.0.1", "DELETE", RawResponse(404, kind, b"Not Found"))


@pytest.mark.parametrize(
    ("status", "error"), [(502, CMLOutcomeUnknownError), (503, CMLNotReadyError), (504, CMLOutcomeUnknownError)]
)
def test_a_gateway_may_have_forwarded_a_mutating_call(status: int, error: type[CMLError]) -> None:
    with pytest.raises(CMLNotReadyError) as caught:
        parse_response("10.0.0.1", "POST", RawResponse(status, "text/html", b"<html>"))
    assert type(caught.value) is error


@given(
    st.integers(100, 599),
    st.sampled_from(["application/json", "text/html", "", "application/json; charset=utf-8", "x"]),
    st.binary(max_size=60) | st.text(max_size=30).map(str.encode),
)
def test_any_response_is_parsed_or_raises_a_cml_error(status: int, kind: str, body: bytes) -> None:
    message = ""
    try:
        assert isinstance(parse_response("a", "GET", RawResponse(status, kind, body)), CMLResponse)
    except CMLError as error:
        message = str(error)
    assert message.isprintable()
