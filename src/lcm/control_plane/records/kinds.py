"""The kinds of documents that the control plane stores, and the fields by which each can be queried.

Query fields are stored beside each document. A field that is new in this version is empty for older documents, which
would then be missing from lists that are sorted or filtered by it: `backfill` writes it at the start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.records.search_text import SEARCH_FIELD, lablet_search_text, worker_search_text
from lcm.control_plane.store.port import Kind
from lcm.model.booking.record import OPEN_STATUSES, BookingStatus
from lcm.model.lablet.status import FINAL_LABLET_STATUSES
from lcm.model.lablet.urgency import lablet_urgency, shown_until
from lcm.model.worker.cost import fleet_cost
from lcm.model.worker.status import WorkerStatus
from lcm.model.worker.urgency import worker_urgency

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.control_plane.store.port import FieldValue, Store, StoredDocument, Where
    from lcm.model.booking.record import Booking
    from lcm.model.lablet.record import Lablet, LabletDefinitionSummary
    from lcm.model.worker.record import Worker


_PAGE = 100

WORKERS = Kind(
    "workers",
    fields=(
        "name",
        "status",
        "desired_status",
        "aws_region",
        "template_name",
        "team",
        "ready",
        "held",
        "at_rest",
        "created_at",
        "updated_at",
        "cost_per_hour_usd",
        "billed_usd",
        "cost_micro_usd",
        "price_unknown",
        "storage_price",
        "cpu_cores",
        "memory_gb",
        "storage_gb",
        "max_nodes",
        "saved_usd",
        "stopped_since",
        "stopped_by_policy",
        "urgency",
        "attention",
        SEARCH_FIELD,
    ),
    searched=(SEARCH_FIELD,),
    unique=("name", "instance_id", "requested_for"),
    grouped=(
        "aws_region",
        "status",
        "ready",
        "held",
        "cost_per_hour_usd",
        "billed_usd",
        "cost_micro_usd",
        "price_unknown",
        "storage_price",
        "cpu_cores",
        "memory_gb",
        "storage_gb",
        "max_nodes",
        "saved_usd",
        "stopped_since",
        "stopped_by_policy",
    ),
    listed=("status", "urgency", "aws_region", "template_name", "ready", "held"),
    archived=(("status", (WorkerStatus.TERMINATED.value,)),),
)
LABLETS = Kind(
    "lablets",
    fields=(
        "name",
        "status",
        "owner",
        "team",
        "team_owner",
        "worker_id",
        "definition",
        "definition_name",
        "wanted",
        "created_at",
        "updated_at",
        "urgency",
        "attention",
        "shown_until",
        SEARCH_FIELD,
    ),
    searched=(SEARCH_FIELD,),
    unique=("name",),
    grouped=("status",),
    listed=("shown_until", "status", "urgency", "definition", "definition_name", "worker_id"),
    archived=(("status", tuple(sorted(FINAL_LABLET_STATUSES))),),
)
DEFINITIONS = Kind("definitions", fields=("name", "enabled", "created_at", "team"), unique=("name",))
TEAMS = Kind("teams", fields=("name",), unique=("name",))
TOPOLOGIES = Kind("topologies")
LEADERSHIPS = Kind("leaderships")
TEMPLATES = Kind("templates", fields=("enabled",))
SETTINGS = Kind("settings")
FLEET = Kind("fleet")
DECISIONS = Kind("decisions")
CONTROLLER_REPORTS = Kind("controller_reports")
WORKER_SECRETS = Kind("worker_secrets")
INSTALLATION = Kind("installation")
RETENTION_MARKERS = Kind("forgotten")  # stored names do not change
IDEMPOTENT_RESPONSES = Kind("answers", fields=("at",))
FLEET_HISTORY = Kind("fleet_history", fields=("at", "interval"))
SIGN_IN_LINKS = Kind("sign_in_links", fields=("owner", "expires_at"))
SEAT_LINKS = Kind("seat_links", fields=("lablet_id", "expires_at", "removed_at"))
SEAT_TRIES = Kind("seat_tries", fields=("expires_at",))
SEAT_SESSIONS = Kind("seat_sessions", fields=("link_id", "expires_at"))
SUBSCRIPTIONS = Kind("subscriptions", fields=("name",), unique=("name",))
SUBSCRIPTION_SECRETS = Kind("subscription_secrets")
DELIVERY_STATES = Kind("delivery_states")
DEAD_LETTERS = Kind("dead_letters", fields=("subscription_id", "at"))
NOTIFICATION_SENDER = Kind("notification_sender")
OPEN_ALERTS = Kind("open_alerts")
SCHEDULES = Kind("schedules", fields=("name",), unique=("name",))
CALENDAR = Kind("calendar")
BOOKINGS = Kind(
    "bookings",
    fields=("name", "status", "team", "aws_region", "watched", "starts_at", "ends_at", "created_at"),
    unique=("name",),
    grouped=("status",),
    archived=(("status", (BookingStatus.ENDED.value, BookingStatus.CANCELLED.value)),),
)
LAUNCH_TIMES = Kind("launch_times")

ALL_KINDS = (
    WORKERS,
    LABLETS,
    DEFINITIONS,
    TOPOLOGIES,
    LEADERSHIPS,
    TEMPLATES,
    SETTINGS,
    FLEET,
    DECISIONS,
    CONTROLLER_REPORTS,
    WORKER_SECRETS,
    IDEMPOTENT_RESPONSES,
    INSTALLATION,
    RETENTION_MARKERS,
    FLEET_HISTORY,
    SIGN_IN_LINKS,
    SEAT_LINKS,
    SEAT_TRIES,
    SEAT_SESSIONS,
    SUBSCRIPTIONS,
    SUBSCRIPTION_SECRETS,
    DELIVERY_STATES,
    DEAD_LETTERS,
    NOTIFICATION_SENDER,
    OPEN_ALERTS,
    TEAMS,
    SCHEDULES,
    CALENDAR,
    BOOKINGS,
    LAUNCH_TIMES,
)

WORKER_HISTORY = "history"
AUDIT = "audit"
WORKER_CHANGED = "worker"
LABLET_HISTORY = "lablet-history"
LABLET_CHANGED = "lablet"
ALERT = "alert"
BOOKING_CHANGED = "booking"


def worker_fields(worker: Worker) -> dict[str, FieldValue]:
    """The fields by which workers can be filtered, sorted and summed."""
    size = worker.capacity
    cost, price = fleet_cost([worker]), worker.cost_per_hour_usd or 0.0
    stopped = worker.status is WorkerStatus.STOPPED
    urgency = worker_urgency(worker)
    return {
        "name": worker.name,
        "status": worker.status.value,
        "desired_status": worker.desired_status.value,
        "aws_region": worker.aws_region,
        "template_name": worker.template_name,
        "team": worker.team or None,
        "ready": worker.ready,
        "held": worker.hold is not None,
        "at_rest": worker.at_rest,
        "created_at": worker.created_at.isoformat(),
        "updated_at": worker.updated_at.isoformat(),
        "cost_per_hour_usd": worker.cost_per_hour_usd,
        "billed_usd": None if cost.unknown else cost.usd,  # what it costs an hour now
        "cost_micro_usd": cost.micro_usd,  # the same as a whole number, whose sums are exact
        "price_unknown": cost.unknown,
        "storage_price": worker.storage_price_per_gb_month_usd,
        "cpu_cores": size.cpu_cores if size else None,
        "memory_gb": size.memory_gb if size else None,
        "storage_gb": size.storage_gb if size else None,
        "max_nodes": size.max_nodes if size else None,
        # The savings of finished stops, and for a current stop its start time multiplied by the price. From the sums of
        # both, the savings of the whole fleet at any time follow without reading a single record.
        "saved_usd": price * worker.stopped_seconds / 3600,
        "stopped_since": price * worker.status_since.timestamp() / 3600 if stopped else 0.0,
        "stopped_by_policy": worker.stopped_by_policy,
        "urgency": int(urgency),
        "attention": f"{int(urgency)} {worker.name}",  # problems first, then by name
        SEARCH_FIELD: worker_search_text(worker),
    }


def worker_unique_keys(worker: Worker) -> dict[str, str]:
    """The values that no two workers may share unless one of them is TERMINATED."""
    if worker.status is WorkerStatus.TERMINATED:
        return {}
    keys = {"name": worker.name}
    if worker.instance_id is not None:
        keys["instance_id"] = worker.instance_id
    if worker.requested_for is not None:
        keys["requested_for"] = worker.requested_for
    return keys


def lablet_fields(lablet: Lablet) -> dict[str, FieldValue]:
    """The fields by which lablets can be filtered and sorted."""
    urgency = int(lablet_urgency(lablet))
    return {
        "name": lablet.name,
        "status": lablet.status.value,
        "owner": lablet.owner_name,
        "team": lablet.team,  # never None, which is what records of older versions have
        "team_owner": team_owner(lablet.team, lablet.owner),
        "worker_id": lablet.worker_id,
        "definition": lablet.definition,
        "definition_name": lablet.definition.partition("@")[0],
        "wanted": lablet.wanted,
        "created_at": lablet.created_at.isoformat(),
        "updated_at": lablet.updated_at.isoformat(),
        "urgency": urgency,
        "attention": f"{urgency} {lablet.name}",  # problems first, then by name
        "shown_until": shown_until(lablet),
        SEARCH_FIELD: lablet_search_text(lablet),
    }


def lablet_unique_keys(lablet: Lablet) -> dict[str, str]:
    """The values that no two lablets may share unless one of them has ended."""
    return {} if lablet.status in FINAL_LABLET_STATUSES else {"name": in_team(lablet.team, lablet.name)}


def in_team(team: str, name: str) -> str:
    """A name that is unique within its team. No name of ours has a colon."""
    return f"{team}:{name}" if team else name


def team_owner(team: str, owner: str) -> str:
    """Team and owner in one field; ids of teams have no space."""
    return f"{team} {owner}"


def definition_fields(definition: LabletDefinitionSummary) -> dict[str, FieldValue]:
    """The fields by which definitions can be filtered and sorted."""
    return {
        "name": definition.name,
        "enabled": definition.enabled,
        "created_at": definition.created_at.isoformat(),
        "team": definition.team,
    }


def definition_unique_keys(definition: LabletDefinitionSummary) -> dict[str, str]:
    """The values that no two definitions may share."""
    return {"name": in_team(definition.team, definition.reference)}


def booking_fields(booking: Booking) -> dict[str, FieldValue]:
    """The fields by which bookings can be filtered and sorted."""
    begins, ends = booking.span
    return {
        "name": booking.name,
        "status": booking.status.value,
        "team": booking.team,
        "aws_region": booking.aws_region,
        "watched": booking.is_watched,
        "starts_at": begins.isoformat(),
        "ends_at": ends.isoformat(),
        "created_at": booking.created_at.isoformat(),
    }


def booking_unique_keys(booking: Booking) -> dict[str, str]:
    """The values that no two bookings may share unless one of them is over: another team's names are not known."""
    return {"name": in_team(booking.team, booking.name)} if booking.status in OPEN_STATUSES else {}


async def find_all(store: Store, kind: Kind, where: Where | None = None) -> AsyncIterator[StoredDocument]:
    """All matching documents, read page by page."""
    after: str | None = None
    while True:
        page = await store.find(kind, where, after=after, limit=_PAGE)
        for stored in page.items:
            yield stored
        after = page.next_cursor
        if after is None:
            return
