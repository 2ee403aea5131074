"""Cursors: opaque to clients, and validated when a client sends one."""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lcm.control_plane.store.port import InvalidCursorError
from lcm.control_plane.store.validation import check_id
from lcm.control_plane.store.values import check_value

if TYPE_CHECKING:
    from lcm.control_plane.store.port import FieldValue, Kind, Sort

_JOURNAL_CURSOR = re.compile(r"[0-9]{16}")


@dataclass(frozen=True, slots=True)
class PagePosition:
    """The last document of a page. The next page begins after it, even if it has been deleted."""

    value: FieldValue
    id: str


def page_cursor(kind: Kind, sort: Sort, position: PagePosition) -> str:
    """Encode a position in a list."""
    text = json.dumps([kind.name, sort.by, sort.descending, position.value, position.id], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def parse_page_cursor(kind: Kind, sort: Sort, cursor: str) -> PagePosition:
    """Decode a cursor, which must be from the same list."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        name, by, descending, value, document_id = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        check_value(value, "cursor")
        check_id(document_id)
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise InvalidCursorError("the cursor is not valid for this list") from None
    if (name, by, descending) != (kind.name, sort.by, sort.descending):
        raise InvalidCursorError("the cursor is from a list of another kind or order")
    return PagePosition(value, document_id)


def journal_cursor(number: int) -> str:
    """Encode a position in the journal. All cursors have the same length, so they compare as text."""
    return f"{number:016d}"


def parse_journal_cursor(cursor: str) -> int:
    """Decode a journal cursor."""
    if not _JOURNAL_CURSOR.fullmatch(cursor) or not cursor.isascii():
        raise InvalidCursorError("the cursor is not a journal cursor")
    return int(cursor)
