"""What the leader asks a reader for, and what the reader returns, as lines of JSON.

Not pickled as between a controller and its poller processes: these messages come from another host.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

from pydantic import TypeAdapter

from lcm.cloud.types import InstanceMetrics
from lcm.cml import errors
from lcm.cml.errors import CMLError, CMLPollerError
from lcm.cml.reading import ServerQuery, ServerReading
from lcm.cml.types import (
    CMLActivity,
    Credentials,
    LicenseState,
    SystemInformation,
    SystemStats,
)

FORMAT: Final = 2
"""Readers whose messages have another format are not used: while replicas are upgraded, the leader reads for them."""

SIGN_OF_LIFE: Final = b"\n"
"""An empty line, while no result is there yet."""

_ERRORS: Final = ("information_error", "stats_error", "license_error", "health_error", "definitions_error")
_ERROR_TYPES: Final = {
    each.__name__: each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, CMLError)
}


_MALFORMED: Final = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)

MAX_READ_SECONDS: Final = 300.0


class InvalidMessageError(Exception):
    """A message cannot be understood."""


class ReadFailedError(Exception):
    """A reader could not read a batch of metrics. The text says why."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """One server to read: the parts in `query`, or the result of `method`, which takes the account.

    `owner` is the instance that has the address. Where it is another one than before, sessions with the former server
    are dropped. `pin` is its pinned certificate.
    """

    number: int
    owner: str
    pin: str | None
    seconds: float
    query: ServerQuery
    method: str = ""


@dataclass(frozen=True, slots=True)
class MetricsRequest:
    """The latest metrics of instances before `end`, read with credentials of this account."""

    number: int
    region: str
    account_id: str
    instance_ids: tuple[str, ...]
    end: datetime
    seconds: float


AnyRequest: TypeAlias = ReadRequest | MetricsRequest
InstanceMetricsById: TypeAlias = Mapping[str, InstanceMetrics]


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The result of one request, or the error instead of it."""

    number: int
    value: ServerReading | CMLActivity | InstanceMetricsById | str | None = None
    error: CMLError | ReadFailedError | None = None


@dataclass(frozen=True, slots=True)
class _ReadingParts:
    """The parts of a reading that are no errors."""

    information: SystemInformation | None
    stats: SystemStats | None
    labs_counted: bool
    license_state: LicenseState | None
    license_read: bool
    kvm_enabled: bool | None
    definitions: tuple[str, ...] | None
    timed_out: bool


# What arrives is checked: a value of another type would fail far from here, and concern more than one server.
_READING: Final = TypeAdapter(_ReadingParts)
_ACTIVITY: Final = TypeAdapter(CMLActivity)
_METRICS: Final = TypeAdapter(list[InstanceMetrics])
_TEXT: Final = TypeAdapter[str | None](str | None)

METHODS: Final = ("get_activity_events", "get_own_user_id")
_VALUE_TYPES: Final = {
    "": ServerReading,
    "get_activity_events": CMLActivity,
    "get_own_user_id": str | None,
}


def encode_requests(requests: Sequence[AnyRequest]) -> bytes:
    """The body of a request to a reader."""
    return json.dumps([asdict(request) for request in requests], separators=(",", ":"), default=_encode_time).encode()


def _encode_time(value: object) -> str:
    assert isinstance(value, datetime)
    return value.isoformat()


def decode_requests(body: bytes) -> list[AnyRequest | ReadResult]:
    """The requests in a body; for one that is invalid the result that says so: the others are read."""
    try:
        return [_decode_request_or_failure(item) for item in json.loads(body)]
    except _MALFORMED as error:
        raise InvalidMessageError(f"{type(error).__name__}: {error}") from None


def _decode_request_or_failure(item: dict[str, Any]) -> AnyRequest | ReadResult:
    number = int(item["number"])
    address = str(item["query"]["address"]) if "query" in item else None
    try:
        return _decode_request(item)
    except _MALFORMED as error:
        reason = f"the reader does not understand the request: {type(error).__name__}: {error}"
        return ReadResult(number, error=ReadFailedError(reason) if address is None else CMLPollerError(address, reason))


def _decode_request(item: dict[str, Any]) -> AnyRequest:
    item = {**item, "seconds": float(item["seconds"])}
    if not 0.0 < item["seconds"] <= MAX_READ_SECONDS:
        raise ValueError(f"seconds: must be above 0 and at most {MAX_READ_SECONDS:g}")
    if "query" not in item:
        end, ids = datetime.fromisoformat(item["end"]), tuple(item["instance_ids"])
        return MetricsRequest(**{**item, "end": end, "instance_ids": ids})
    query, method = dict(item["query"]), item["method"]
    if method and method not in METHODS:
        raise ValueError(f"method: must be one of {', '.join(METHODS)}")
    account, nodes = query["account"], query["nodes_before"]
    query["account"] = None if account is None else Credentials(**account)
    query["nodes_before"] = None if nodes is None else tuple(nodes)
    return ReadRequest(**{**item, "query": ServerQuery(**query)})


def encode_result(result: ReadResult) -> bytes:
    """One line."""
    value = result.value
    content: dict[str, Any] = {"number": result.number, "error": _encode_error(result.error)}
    if isinstance(value, ServerReading):
        content["reading"] = _encode_reading(value)
    elif isinstance(value, CMLActivity):
        content["activity"] = {
            **asdict(value),
            "events": [{**asdict(event), "at": event.at.isoformat()} for event in value.events],
        }
    elif isinstance(value, Mapping):
        content["metrics"] = [asdict(metrics) for metrics in value.values()]
    else:
        content["text"] = value
    return json.dumps(content, separators=(",", ":"), default=_encode_time).encode() + b"\n"


def decode_result(line: bytes) -> ReadResult:
    """The result in a line."""
    try:
        return _decode_result(json.loads(line))
    except _MALFORMED as error:
        raise InvalidMessageError(f"{type(error).__name__}: {error}") from None


def _decode_result(content: dict[str, Any]) -> ReadResult:
    number, error = int(content["number"]), _decode_error(content["error"])
    if "reading" in content:
        return ReadResult(number, _decode_reading(content["reading"]), error)
    if "activity" in content:
        return ReadResult(number, _ACTIVITY.validate_python(content["activity"]), error)
    if "metrics" in content:
        metrics = _METRICS.validate_python(content["metrics"])
        return ReadResult(number, {each.instance_id: each for each in metrics}, error)
    return ReadResult(number, _TEXT.validate_python(content["text"]), error)


def check_result(request: AnyRequest, result: ReadResult) -> None:
    """Raise unless the result is one of this request."""
    if isinstance(request, MetricsRequest):
        is_error = isinstance(result.error, ReadFailedError)
        is_value = isinstance(result.value, Mapping) and result.value.keys() <= set(request.instance_ids)
    else:
        is_error = isinstance(result.error, CMLError)
        is_value = isinstance(result.value, _VALUE_TYPES[request.method])
    if not (is_value if result.error is None else is_error):
        raise InvalidMessageError("a result of another request")


def _encode_reading(reading: ServerReading) -> dict[str, Any]:
    parts = {name: getattr(reading, name) for name in ("information", "stats", "license_state")}
    content: dict[str, Any] = {name: None if part is None else asdict(part) for name, part in parts.items()}
    if reading.license_state is not None and reading.license_state.expires is not None:
        content["license_state"]["expires"] = reading.license_state.expires.isoformat()
    plain = ("labs_counted", "kvm_enabled", "definitions", "timed_out")
    return {
        **content,
        **{name: getattr(reading, name) for name in plain},
        **{name: _encode_error(getattr(reading, name)) for name in _ERRORS},
        "license_read": reading.license_began is not None,
    }


def _decode_reading(content: dict[str, Any]) -> ServerReading:
    """The times of the other host mean nothing here: whoever asked knows when that was."""
    parts = _READING.validate_python(content)
    return ServerReading(
        information=parts.information,
        stats=parts.stats,
        labs_counted=parts.labs_counted,
        license_state=parts.license_state,
        license_began=0.0 if parts.license_read else None,
        kvm_enabled=parts.kvm_enabled,
        definitions=parts.definitions,
        timed_out=parts.timed_out,
        **{name: _decode_cml_error(content[name]) for name in _ERRORS},
    )


def _encode_error(error: CMLError | ReadFailedError | None) -> dict[str, Any] | None:
    if error is None:
        return None
    if isinstance(error, ReadFailedError):
        return {"kind": ReadFailedError.__name__, "arguments": [str(error)]}
    kind, arguments = error.__reduce__()
    return {"kind": kind.__name__, "arguments": arguments}


def _decode_error(content: dict[str, Any] | None) -> CMLError | ReadFailedError | None:
    if content is not None and content["kind"] == ReadFailedError.__name__:
        return ReadFailedError(*content["arguments"])
    return _decode_cml_error(content)


def _decode_cml_error(content: dict[str, Any] | None) -> CMLError | None:
    if content is None:
        return None
    kind, arguments = _ERROR_TYPES.get(content["kind"]), [str(each) for each in content["arguments"]]
    if kind is None:
        return CMLPollerError(arguments[0], f"the reader reports {content['kind']}: {' '.join(arguments[1:])}")
    return kind(*arguments)
