"""What somebody looks at in a list: filters, order and place, as they stand in the address."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self
from urllib.parse import urlencode

from lcm.control_plane.http.api.workers import split_values
from lcm.control_plane.store.port import InvalidCursorError, Sort

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.datastructures import QueryParams

    from lcm.control_plane.store.port import Kind, Store, StoredDocument, Where

PAGE_SIZE: Final = 50
_MAX_TEXT = 100
_MAX_CURSOR = 500
_DEFAULT_SORT = "attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery(ABC):
    """One way to look. What the address says wrongly is left out: a bookmark of yesterday still shows something.

    Each list has its own filters beside these: fields that are texts, or tuples of texts.
    """

    path: ClassVar[str]
    views: ClassVar[Mapping[str, str]]
    columns: ClassVar[tuple[str, ...]]
    known: ClassVar[frozenset[str]]  # statuses

    view: str = ""
    q: str = ""
    status: tuple[str, ...] = ()
    sort: str = _DEFAULT_SORT
    after: str = ""
    page: int = 1

    @classmethod
    def of(cls, query: QueryParams) -> Self:
        """The look that an address stands for."""
        sort = query.get("sort", _DEFAULT_SORT)
        number = query.get("page", "1")
        own: dict[str, Any] = {}
        for name, usual in cls._own().items():
            several = isinstance(usual, tuple)
            own[name] = tuple(split_values(query.getlist(name))) if several else query.get(name, "").strip()[:_MAX_TEXT]
        return cls(
            view=query.get("view", "") if query.get("view", "") in cls.views else "",
            q=query.get("q", "").strip()[:_MAX_TEXT],
            status=tuple(word.upper() for word in split_values(query.getlist("status")) if word.upper() in cls.known),
            sort=sort if sort.removeprefix("-") in cls.columns else _DEFAULT_SORT,
            after=query.get("after", "")[:_MAX_CURSOR],
            page=int(number) if number.isdecimal() and len(number) < 6 else 1,
            **own,
        )

    @classmethod
    def _own(cls) -> dict[str, Any]:
        """The filters that only this list has, each with what it is as usual."""
        shared = {each.name for each in fields(ListQuery)}
        return {each.name: each.default for each in fields(cls) if each.name not in shared}

    @property
    def narrowed(self) -> bool:
        """Whether somebody looks at less than everything."""
        return any(getattr(self, name) for name in ("view", "q", "status", *self._own()))

    def sorting(self) -> Sort:
        """The order in the store's words."""
        return Sort(self.sort.removeprefix("-"), descending=self.sort.startswith("-"))

    @abstractmethod
    def where(self) -> Where:
        """The filter in the store's words."""

    def address(self, **changes: object) -> str:
        """The address of this look with something changed; another filter or order begins at the first page."""
        fresh = {} if "after" in changes else {"after": "", "page": 1}
        look = replace(self, **{**fresh, **changes})  # type: ignore[arg-type]
        query = urlencode([(name, value) for name, value in look.words().items() if value])
        return f"{self.path}?{query}" if query else self.path

    def words(self) -> dict[str, str]:
        """Name and value of each part of the address; empty where it is as usual."""
        own = {name: getattr(self, name) for name in ("view", "q", "status", *self._own())}
        return {
            **{name: ",".join(value) if isinstance(value, tuple) else value for name, value in own.items()},
            "sort": "" if self.sort == _DEFAULT_SORT else self.sort,
            "after": self.after,
            "page": str(self.page) if self.page > 1 else "",
        }

    def turned(self, column: str) -> str:
        """The address that sorts by a column, or the other way round if it does already."""
        return self.address(sort=f"-{column}" if self.sort == column else column)


async def read_list_page(store: Store, kind: Kind, look: ListQuery) -> tuple[Sequence[StoredDocument], dict[str, Any]]:
    """A page of a list, and what its table says of it.

    A place that no longer means anything is the first page, not an error.
    """
    try:
        found = await store.find(kind, look.where(), sort=look.sorting(), after=look.after or None, limit=PAGE_SIZE)
    except InvalidCursorError:
        look = replace(look, after="", page=1)
        found = await store.find(kind, look.where(), sort=look.sorting(), limit=PAGE_SIZE)
    total = sum(count for _, count, _ in await store.count_by(kind, ["urgency"], look.where()))
    return found.items, {
        "look": look,
        "next_address": look.address(after=found.next_cursor, page=look.page + 1) if found.next_cursor else None,
        "total": total,
        "pages": (total + PAGE_SIZE - 1) // PAGE_SIZE,
    }
