"""Seat links for a whole class: a link for each seat, and the list that its instructor hands out."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Final

from pydantic import Field

from lcm.model.base import LenientModel, RequestedTime, RevealedSecret, StrictModel

if TYPE_CHECKING:
    from collections.abc import Iterable

_FORMULA_SIGNS: Final = ("=", "+", "-", "@", "\t", "\r")


class CreateClassLinksRequest(StrictModel):
    """Create a seat link for each seat of a class."""

    expires_at: RequestedTime | None = Field(
        default=None, description="Until when they can be opened; until the class ends if not given, 30 days at most."
    )


class ClassSeatLink(LenientModel):
    """The new link of one seat. Its path contains the secret, which is returned only once."""

    seat: int
    learner: str = Field(description="Who gets the seat; empty if nobody is named.")
    lablet_id: str
    lablet_name: str
    link_id: str
    path: RevealedSecret


class SeatWithoutLink(LenientModel):
    """A seat that gets no link, and why."""

    seat: int
    learner: str
    reason: str


class ClassSeatLinks(LenientModel):
    """The new links of a class, and the seats without one."""

    items: tuple[ClassSeatLink, ...]
    left_out: tuple[SeatWithoutLink, ...] = ()


class RevokedClassLinks(LenientModel):
    """How many links of a class were revoked."""

    revoked: int


def class_links_csv(links: Iterable[ClassSeatLink], base_url: str) -> str:
    """The list for a spreadsheet. A name that a spreadsheet would take for a formula is marked as text."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("seat", "learner", "lablet", "link"))
    for each in links:
        learner = f"'{each.learner}" if each.learner.startswith(_FORMULA_SIGNS) else each.learner
        writer.writerow((each.seat, learner, each.lablet_name, link_address(each, base_url)))
    return out.getvalue()


def link_address(link: ClassSeatLink, base_url: str) -> str:
    """The whole address of a link."""
    return base_url.rstrip("/") + link.path.get_secret_value()
