"""Lists of large fleets: a record that has not changed since the last list is not decoded again."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakValueDictionary, ref

from pydantic import BaseModel
from pydantic_core import from_json, to_json

from lcm.client.responses import decode_body
from lcm.model.base import format_utc, share_field_sets

if TYPE_CHECKING:
    from lcm.client.responses import ApiRequest
    from lcm.model.base import Page

D = TypeVar("D", bound=BaseModel)
_MAX_PAGES = 1_000  # 100,000 workers


class KnownRecords(Generic[D]):
    """Records of earlier lists, for as long as somebody uses them.

    Each has an id, and a `version` and a time `updated_at` that both change with every write. Decoding 10,000 workers
    takes more than a second, and almost none of them changes between two lists.
    """

    def __init__(self, model: type[D]) -> None:
        self._model = model
        self._known: WeakValueDictionary[str, D] = WeakValueDictionary()
        self._pages: OrderedDict[bytes, tuple[list[ref[D]], str | None]] = OrderedDict()  # by digest of the body

    def decode_page(self, call: ApiRequest, body: bytes, page: type[Page[D]]) -> Page[D]:
        """A page of a list, with the objects of earlier lists where nothing changed."""
        digest = blake2b(body, digest_size=16).digest()
        if (same := self._same_page(digest)) is not None:
            return page.model_construct(items=same[0], next_cursor=same[1])
        try:
            content = from_json(body)
            items, next_cursor = tuple(map(self._decode, content["items"])), content.get("next_cursor")
            if isinstance(next_cursor, str | None):
                self._remember(digest, items, next_cursor)
                return page.model_construct(items=items, next_cursor=next_cursor)
        except (ValueError, TypeError, LookupError, AttributeError):
            pass
        return decode_body(call, body, page)  # its error names the field

    def same(self, record: D) -> D:
        """The object of an earlier read of this state of the record, or this one, which is then known."""
        read: Any = record
        known: Any = self._known.get(read.id)
        if known is not None and (known.version, known.updated_at) == (read.version, read.updated_at):
            earlier: D = known
            return earlier
        self._known[read.id] = share_field_sets(record)
        return record

    def _same_page(self, digest: bytes) -> tuple[tuple[D, ...], str | None] | None:
        """The content of a page with the same bytes, if all its records are still in use."""
        references, next_cursor = self._pages.get(digest, ([], None))
        items = tuple(item for reference in references if (item := reference()) is not None)
        return (items, next_cursor) if items and len(items) == len(references) else None

    def _remember(self, digest: bytes, items: tuple[D, ...], next_cursor: str | None) -> None:
        self._pages[digest] = ([ref(item) for item in items], next_cursor)
        while len(self._pages) > _MAX_PAGES:
            self._pages.popitem(last=False)

    def _decode(self, item: dict[str, Any]) -> D:
        known: Any = self._known.get(item["id"])
        if (
            known is not None
            and known.version == item["version"]
            and format_utc(known.updated_at) == item["updated_at"]
        ):
            record: D = known
            return record
        record = share_field_sets(self._model.model_validate_json(to_json(item)))
        self._known[item["id"]] = record
        return record
