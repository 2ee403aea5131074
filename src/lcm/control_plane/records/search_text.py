"""The text by which workers and lablets are found: everything that a user may know about one, in one field.

The store searches it for each word of a query. It is a part of the record's fields, so that no list reads bodies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

SEARCH_FIELD = "search_text"
MAX_WORDS = 10


def worker_search_text(worker: Worker) -> str:
    """Name, id, instance, addresses, region, template and tags (such as `owner=ann`)."""
    return _lines(
        (
            worker.name,
            worker.id,
            worker.instance_id,
            worker.public_ip,
            worker.private_ip,
            worker.aws_region,
            worker.template_name,
            *(f"{key}={value}" for key, value in worker.tags.items()),
        )
    )


def lablet_search_text(lablet: Lablet) -> str:
    """Name, id, owner, definition, worker, instance, region and the addresses of its nodes."""
    return _lines(
        (
            lablet.name,
            lablet.id,
            lablet.owner_name,
            lablet.definition,
            lablet.worker_id,
            lablet.instance_id,
            lablet.aws_region,
            *(address for endpoint in lablet.endpoints for address in endpoint.addresses),
        )
    )


def search_condition(query: str) -> dict[str, Sequence[str]]:
    """The condition for the store: each word occurs somewhere. An empty query matches everything."""
    words = query.split()[:MAX_WORDS]
    return {SEARCH_FIELD: words} if words else {}


def _lines(parts: Iterable[str | None]) -> str:
    """One line each: a word of a query never matches across two of them."""
    return "\n".join(part.replace("\0", "") for part in parts if part)
