"""Responses built from stored bytes: pages of lists, and single records with an ETag."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

from fastapi import Query
from fastapi.responses import Response
from pydantic_core import from_json

from lcm.model.audit import AuditEntry, LabletHistoryEntry, WorkerHistoryEntry
from lcm.model.base import Page
from lcm.model.booking.record import Booking
from lcm.model.calendar.schedule import Schedule
from lcm.model.calendar.schedule_preview import ScheduleStatus
from lcm.model.fleet.state import LeadershipTerm
from lcm.model.lablet.record import Lablet, LabletDefinitionSummary
from lcm.model.lablet.seat_link import SeatLink
from lcm.model.notification.subscription import DeadLetter, Subscription
from lcm.model.team import TeamSummary, WorkerReadiness
from lcm.model.worker.metrics import MetricsSample
from lcm.model.worker.record import Worker
from lcm.model.worker.template import WorkerTemplate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.control_plane.store.port import DocumentPage, JournalEntry, Sample

Limit = Annotated[int, Query(ge=1, le=1000, description="The maximum number of items on the page.")]
Cursor = Annotated[str | None, Query(max_length=500, description="The `next_cursor` of the previous page.")]


# Subclasses, because OpenAPI would name the generic classes Page_Worker_ and so on.
class WorkerPage(Page[Worker]):
    """A page of workers."""


class HistoryPage(Page[WorkerHistoryEntry]):
    """A page of a worker's status changes."""


class AuditPage(Page[AuditEntry]):
    """A page of audit entries."""


class TemplatePage(Page[WorkerTemplate]):
    """A page of worker templates."""


class MetricsPage(Page[MetricsSample]):
    """Metrics samples of a worker."""


class LabletPage(Page[Lablet]):
    """A page of lablets."""


class LabletHistoryPage(Page[LabletHistoryEntry]):
    """A page of a lablet's status changes."""


class SeatLinkPage(Page[SeatLink]):
    """A page of the seat links of a lablet, without their secrets."""


class DefinitionPage(Page[LabletDefinitionSummary]):
    """A page of lablet definitions, without their topologies."""


class SubscriptionPage(Page[Subscription]):
    """A page of subscriptions."""


class SchedulePage(Page[ScheduleStatus]):
    """A page of schedules, each with what it is now."""


class ScheduleRecordPage(Page[Schedule]):
    """A page of schedules as they are stored."""


class BookingPage(Page[Booking]):
    """A page of bookings."""


class DeadLetterPage(Page[DeadLetter]):
    """A page of notifications that could not be delivered."""


class TeamPage(Page[TeamSummary]):
    """A page of teams."""


class WorkerReadinessPage(Page[WorkerReadiness]):
    """A page of workers, by name and readiness only."""


class LeaderPage(Page[LeadershipTerm]):
    """The newest term of each controller."""


def raw_page(page: DocumentPage) -> Response:
    """A page of documents as they are stored."""
    return _raw_response([item.body for item in page.items], page.next_cursor)


def raw_journal_page(entries: Sequence[JournalEntry], limit: int) -> Response:
    """A page of the journal. Only a full page can have a next one."""
    return raw_audit_page(entries, entries[-1].cursor if len(entries) == limit else None)


def raw_audit_page(entries: Sequence[JournalEntry], next_cursor: str | None) -> Response:
    """A page of the journal whose next page is known."""
    return _raw_response([entry.body for entry in entries], next_cursor)


def raw_samples(samples: Sequence[Sample]) -> Response:
    """Metrics samples as they are stored."""
    return _raw_response([sample.body for sample in samples], None)


def _raw_response(bodies: Sequence[bytes], next_cursor: str | None) -> Response:
    """Join stored bytes: to decode and encode them again would cost more than the rest of the request."""
    body = b'{"items":[' + b",".join(bodies) + b'],"next_cursor":' + json.dumps(next_cursor).encode() + b"}"
    return Response(body, media_type="application/json")


def versioned_response(body: bytes, status: int = 200) -> Response:
    """A stored record with its version as the ETag."""
    version = from_json(body)["version"]
    return Response(body, status, {"ETag": f'"{version}"'}, media_type="application/json")
