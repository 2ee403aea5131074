"""Answers that several routes give: pages joined from stored bytes, and how errors are documented."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fastapi.responses import Response

from lcm.model.audit import AuditEntry, LabletHistoryEntry, WorkerHistoryEntry
from lcm.model.base import LenientModel
from lcm.model.fleet.state import LeadershipTerm
from lcm.model.lablet.record import Lablet, LabletDefinitionSummary
from lcm.model.problems import PROBLEM_MEDIA_TYPE, Problem
from lcm.model.worker.metrics import MetricsSample
from lcm.model.worker.record import Worker
from lcm.model.worker.template import WorkerTemplate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.control_plane.store.port import DocumentPage, JournalEntry, Sample


class WorkerPage(LenientModel):
    """Some workers."""

    items: list[Worker]
    next_cursor: str | None = None


class HistoryPage(LenientModel):
    """Some steps of a worker's life."""

    items: list[WorkerHistoryEntry]
    next_cursor: str | None = None


class AuditPage(LenientModel):
    """Some lines of the audit."""

    items: list[AuditEntry]
    next_cursor: str | None = None


class TemplatePage(LenientModel):
    """Templates."""

    items: list[WorkerTemplate]
    next_cursor: str | None = None


class MetricsPage(LenientModel):
    """Figures of a worker."""

    items: list[MetricsSample]
    next_cursor: str | None = None


class LabletPage(LenientModel):
    """Some lablets."""

    items: list[Lablet]
    next_cursor: str | None = None


class LabletHistoryPage(LenientModel):
    """Some steps of a lablet's life."""

    items: list[LabletHistoryEntry]
    next_cursor: str | None = None


class DefinitionPage(LenientModel):
    """Some definitions, without their topologies."""

    items: list[LabletDefinitionSummary]
    next_cursor: str | None = None


class LeaderPage(LenientModel):
    """The newest term of each controller."""

    items: list[LeadershipTerm]
    next_cursor: str | None = None


def raw_page(page: DocumentPage) -> Response:
    """A page of documents as they are stored."""
    return _raw_response([item.body for item in page.items], page.next_cursor)


def raw_journal_page(lines: Sequence[JournalEntry], limit: int) -> Response:
    """A page of the journal; a full one may have a next."""
    return raw_audit_page(lines, lines[-1].cursor if len(lines) == limit else None)


def raw_audit_page(lines: Sequence[JournalEntry], following: str | None) -> Response:
    """Lines of the journal, and where the next page begins."""
    return _raw_response([line.body for line in lines], following)


def raw_samples(samples: Sequence[Sample]) -> Response:
    """Rows of a series as they are stored."""
    return _raw_response([sample.body for sample in samples], None)


def _raw_response(bodies: Sequence[bytes], following: str | None) -> Response:
    """Stored bytes are handed on: decoding and encoding them again would cost more than all the rest."""
    body = b'{"items":[' + b",".join(bodies) + b'],"next_cursor":' + json.dumps(following).encode() + b"}"
    return Response(body, media_type="application/json")


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a route, for the OpenAPI document."""
    content = {PROBLEM_MEDIA_TYPE: {"schema": Problem.model_json_schema()}}
    return {status: {"description": _ERROR_DESCRIPTIONS[status], "content": content} for status in statuses}


_ERROR_DESCRIPTIONS = {
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
