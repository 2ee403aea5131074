"""Answers that several routes give: pages joined from stored bytes, and how errors are documented."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fastapi.responses import Response

from lcm.model.audit import AuditEntry, HistoryEntry, LabletHistoryEntry
from lcm.model.base import Answer
from lcm.model.fleet.state import LeaderSeen
from lcm.model.lablet.record import DefinitionSummary, Lablet
from lcm.model.problems import MEDIA_TYPE, Problem
from lcm.model.worker.metrics import MetricsSample
from lcm.model.worker.record import Worker
from lcm.model.worker.template import WorkerTemplate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.control_plane.store.port import Page, Recorded, Sample


class WorkerPage(Answer):
    """Some workers."""

    items: list[Worker]
    next_cursor: str | None = None


class HistoryPage(Answer):
    """Some steps of a worker's life."""

    items: list[HistoryEntry]
    next_cursor: str | None = None


class AuditPage(Answer):
    """Some lines of the audit."""

    items: list[AuditEntry]
    next_cursor: str | None = None


class TemplatePage(Answer):
    """Templates."""

    items: list[WorkerTemplate]
    next_cursor: str | None = None


class MetricsPage(Answer):
    """Figures of a worker."""

    items: list[MetricsSample]
    next_cursor: str | None = None


class LabletPage(Answer):
    """Some lablets."""

    items: list[Lablet]
    next_cursor: str | None = None


class LabletHistoryPage(Answer):
    """Some steps of a lablet's life."""

    items: list[LabletHistoryEntry]
    next_cursor: str | None = None


class DefinitionPage(Answer):
    """Some definitions, without their topologies."""

    items: list[DefinitionSummary]
    next_cursor: str | None = None


class LeaderPage(Answer):
    """The newest term of each controller."""

    items: list[LeaderSeen]
    next_cursor: str | None = None


def joined_page(page: Page) -> Response:
    """A page of documents as they are stored."""
    return _joined([item.body for item in page.items], page.next_after)


def joined_lines(lines: Sequence[Recorded], limit: int) -> Response:
    """A page of the journal; a full one may have a next."""
    return joined_audit(lines, lines[-1].cursor if len(lines) == limit else None)


def joined_audit(lines: Sequence[Recorded], following: str | None) -> Response:
    """Lines of the journal, and where the next page begins."""
    return _joined([line.body for line in lines], following)


def joined_samples(samples: Sequence[Sample]) -> Response:
    """Rows of a series as they are stored."""
    return _joined([sample.body for sample in samples], None)


def _joined(bodies: Sequence[bytes], following: str | None) -> Response:
    """Stored bytes are handed on: decoding and encoding them again would cost more than all the rest."""
    body = b'{"items":[' + b",".join(bodies) + b'],"next_cursor":' + json.dumps(following).encode() + b"}"
    return Response(body, media_type="application/json")


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a route, for the OpenAPI document."""
    content = {MEDIA_TYPE: {"schema": Problem.model_json_schema()}}
    return {status: {"description": _MEANINGS[status], "content": content} for status in statuses}


_MEANINGS = {
    400: "Headers of a leader are missing",
    401: "Not signed in",
    403: "The role does not allow it",
    404: "There is no such thing",
    409: "Not possible as things are; the code says why",
    412: "If-Match named another version",
    429: "Too many failed sign-ins",
    422: "A field is not right; errors says which and what would be",
    503: "The store cannot be reached",
}
