"""What the leader asks a reader for, and what the reader returns, as lines of JSON.

Not pickled as between a controller and its poller processes: these messages come from another host.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

from lcm.cloud.types import InstanceMetrics
from lcm.cml import errors
from lcm.cml.errors import CMLError, CMLPollerError
from lcm.cml.reading import ServerQuery, ServerReading
from lcm.cml.types import (
    CMLActivity,
    CMLActivityEvent,
    Credentials,
    LicenseFeature,
    LicenseState,
    SystemInformation,
    SystemStats,
    Usage,
)

FORMAT: Final = 2
"""Readers whose messages have another format are not used: while replicas are upgraded, the leader reads for them."""

SIGN_OF_LIFE: Final = b"\n"
"""An empty line, while no result is there yet."""

_ERRORS: Final = ("information_error", "stats_error", "license_error", "health_error", "definitions_error")
_ERROR_TYPES: Final = {
    each.__name__: each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, CMLError)
}


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


METHODS: Final = ("get_activity_events", "get_own_user_id")


def encode_requests(requests: Sequence[AnyRequest]) -> bytes:
    """The body of a request to a reader."""
    return json.dumps([asdict(request) for request in requests], separators=(",", ":"), default=_encode_time).encode()


def _encode_time(value: object) -> str:
    assert isinstance(value, datetime)
    return value.isoformat()


def decode_requests(body: bytes) -> list[AnyRequest]:
    """The requests in a body."""
    try:
        return [_decode_request(item) for item in json.loads(body)]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidMessageError(f"{type(error).__name__}: {error}") from None


def _decode_request(item: dict[str, Any]) -> AnyRequest:
    if "query" not in item:
        end, ids = datetime.fromisoformat(item["end"]), tuple(item["instance_ids"])
        return MetricsRequest(**{**item, "seconds": float(item["seconds"]), "end": end, "instance_ids": ids})
    query, method = dict(item["query"]), item["method"]
    if method and method not in METHODS:
        raise ValueError(f"method: must be one of {', '.join(METHODS)}")
    account, nodes = query["account"], query["nodes_before"]
    query["account"] = None if account is None else Credentials(**account)
    query["nodes_before"] = None if nodes is None else tuple(nodes)
    return ReadRequest(**{**item, "seconds": float(item["seconds"]), "query": ServerQuery(**query)})


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
        content = json.loads(line)
        error = _decode_error(content["error"])
        if "reading" in content:
            return ReadResult(content["number"], _decode_reading(content["reading"]), error)
        if "activity" in content:
            return ReadResult(content["number"], _decode_activity(content["activity"]), error)
        if "metrics" in content:
            return ReadResult(content["number"], _decode_metrics(content["metrics"]), error)
        return ReadResult(content["number"], content["text"], error)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidMessageError(f"{type(error).__name__}: {error}") from None


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
    reading = ServerReading(
        labs_counted=content["labs_counted"],
        kvm_enabled=content["kvm_enabled"],
        definitions=None if content["definitions"] is None else tuple(content["definitions"]),
        timed_out=content["timed_out"],
        license_began=0.0 if content["license_read"] else None,
    )
    if (information := content["information"]) is not None:
        reading.information = SystemInformation(**information)
    if (stats := content["stats"]) is not None:
        usage = {name: None if stats[name] is None else Usage(**stats[name]) for name in ("memory", "disk")}
        reading.stats = SystemStats(**{**stats, **usage})
    if (state := content["license_state"]) is not None:
        features = tuple(LicenseFeature(**feature) for feature in state["features"])
        expires = None if state["expires"] is None else datetime.fromisoformat(state["expires"])
        reading.license_state = LicenseState(**{**state, "features": features, "expires": expires})
    for name in _ERRORS:
        setattr(reading, name, _decode_error(content[name]))
    return reading


def _decode_activity(content: dict[str, Any]) -> CMLActivity:
    events = tuple(
        CMLActivityEvent(**{**event, "at": datetime.fromisoformat(event["at"])}) for event in content["events"]
    )
    return CMLActivity(events, content["total"], content["skipped"])


def _decode_metrics(content: list[dict[str, Any]]) -> InstanceMetricsById:
    found = [InstanceMetrics(**{**item, "at": datetime.fromisoformat(item["at"])}) for item in content]
    return {metrics.instance_id: metrics for metrics in found}


def _encode_error(error: CMLError | ReadFailedError | None) -> dict[str, Any] | None:
    if error is None:
        return None
    if isinstance(error, ReadFailedError):
        return {"kind": ReadFailedError.__name__, "arguments": [str(error)]}
    kind, arguments = error.__reduce__()
    return {"kind": kind.__name__, "arguments": arguments}


def _decode_error(content: dict[str, Any] | None) -> CMLError | ReadFailedError | None:
    if content is None:
        return None
    arguments = [str(each) for each in content["arguments"]]
    if content["kind"] == ReadFailedError.__name__:
        return ReadFailedError(*arguments)
    kind = _ERROR_TYPES.get(content["kind"])
    if kind is None:
        return CMLPollerError(arguments[0], f"the reader reports {content['kind']}: {' '.join(arguments[1:])}")
    return kind(*arguments)
