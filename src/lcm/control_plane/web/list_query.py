"""The query of a list page: filters, sort order and page, as they appear in the URL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self
from urllib.parse import urlencode

from lcm.control_plane.http.query_params import split_values
from lcm.control_plane.store.port import DocumentPage, InvalidCursorError, Sort

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.datastructures import QueryParams

    from lcm.control_plane.store.port import FieldValue, Kind, Store, StoredDocument, Where

PAGE_SIZE: Final = 50
_MAX_TEXT = 100
_MAX_CURSOR = 500
_DEFAULT_SORT = "attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery(ABC):
    """The query of one list. Invalid parameters are ignored, so that old bookmarks still show a page.

    Each list adds its own filters: fields that are strings or tuples of strings.
    """

    path: ClassVar[str]
    views: ClassVar[Mapping[str, str]]
    columns: ClassVar[tuple[str, ...]]
    statuses: ClassVar[frozenset[str]]

    view: str = ""
    q: str = ""
    status: tuple[str, ...] = ()
    sort: str = _DEFAULT_SORT
    after: str = ""
    page: int = 1

    @classmethod
    def from_query(cls, params: QueryParams) -> Self:
        """Parse the parameters of a URL."""
        sort = params.get("sort", _DEFAULT_SORT)
        number = params.get("page", "1")
        statuses = (each.upper() for each in split_values(params.getlist("status")))
        own: dict[str, Any] = {}
        for name, default in cls._own_filters().items():
            if isinstance(default, tuple):
                own[name] = tuple(split_values(params.getlist(name)))
            else:
                own[name] = params.get(name, "").strip()[:_MAX_TEXT]
        return cls(
            view=params.get("view", "") if params.get("view", "") in cls.views else "",
            q=params.get("q", "").strip()[:_MAX_TEXT],
            status=tuple(each for each in statuses if each in cls.statuses),
            sort=sort if sort.removeprefix("-") in cls.columns else _DEFAULT_SORT,
            after=params.get("after", "")[:_MAX_CURSOR],
            page=int(number) if number.isdecimal() and len(number) < 6 else 1,
            **own,
        )

    @classmethod
    def _own_filters(cls) -> dict[str, Any]:
        """The filters that only this list has, with their defaults."""
        shared = {each.name for each in fields(ListQuery)}
        return {each.name: each.default for each in fields(cls) if each.name not in shared}

    @property
    def is_filtered(self) -> bool:
        """Whether any filter is set."""
        return any(getattr(self, name) for name in ("view", "q", "status", *self._own_filters()))

    def sort_order(self) -> Sort:
        """The sort order for the store."""
        return Sort(self.sort.removeprefix("-"), descending=self.sort.startswith("-"))

    @abstractmethod
    def where(self) -> Where:
        """The filter for the store."""

    def url(self, **changes: object) -> str:
        """The URL of this query with changes. A different filter or sort order starts at the first page."""
        reset = {} if "after" in changes else {"after": "", "page": 1}
        changed = replace(self, **{**reset, **changes})  # type: ignore[arg-type]
        query = urlencode([(name, value) for name, value in changed.query_params().items() if value])
        return f"{self.path}?{query}" if query else self.path

    def query_params(self) -> dict[str, str]:
        """Name and value of each URL parameter; empty for a default."""
        own = {name: getattr(self, name) for name in ("view", "q", "status", *self._own_filters())}
        return {
            **{name: ",".join(value) if isinstance(value, tuple) else value for name, value in own.items()},
            "sort": "" if self.sort == _DEFAULT_SORT else self.sort,
            "after": self.after,
            "page": str(self.page) if self.page > 1 else "",
        }

    def toggled_sort_url(self, column: str) -> str:
        """The URL that sorts by a column; if it already does, in the opposite direction."""
        return self.url(sort=f"-{column}" if self.sort == column else column)


async def read_list_page(
    store: Store, kind: Kind, query: ListQuery, either: Mapping[str, Sequence[FieldValue]] | None = None
) -> tuple[Sequence[StoredDocument], dict[str, Any]]:
    """A page of a list, and the values that its table template needs. `either` is what the user may see of the list.

    An invalid cursor gives the first page, not an error.
    """
    # Counted first: the store then knows how many documents match, and reads them from the better index.
    where = replace(query.where(), either=either or {})
    total = sum(count for _, count, _ in await store.count_by(kind, ["urgency"], where))
    pages = (total + PAGE_SIZE - 1) // PAGE_SIZE
    if not query.after:
        query = replace(query, page=max(1, min(query.page, pages)))
    skip = 0 if query.after else (query.page - 1) * PAGE_SIZE
    try:
        page = await _find(store, kind, query, where, skip) if total else DocumentPage((), None)
    except InvalidCursorError:
        query = replace(query, after="", page=1)
        page = await _find(store, kind, query, where, 0)
    return page.items, {
        "query": query,
        "previous_url": query.url(after="", page=query.page - 1) if query.page > 1 else None,
        "next_url": query.url(after=page.next_cursor, page=query.page + 1) if page.next_cursor else None,
        "total": total,
        "pages": pages,
    }


async def _find(store: Store, kind: Kind, query: ListQuery, where: Where, skip: int) -> DocumentPage:
    return await store.find(kind, where, sort=query.sort_order(), after=query.after or None, skip=skip, limit=PAGE_SIZE)
