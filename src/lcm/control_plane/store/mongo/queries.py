"""Queries of the port as MongoDB filters.

MongoDB orders null, numbers, text and booleans as the port does. $gt and the like compare values of one type only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

from lcm.control_plane.store.mongo.database import field_index, grouped_index, search_index
from lcm.control_plane.store.values import fold, order_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lcm.control_plane.store.cursors import PagePosition
    from lcm.control_plane.store.port import FieldValue, Kind, Put, Sort, Where

Filter: TypeAlias = dict[str, Any]

_TYPES = ("null", "number", "string", "bool")  # in their order, as values.order_key ranks them


def to_mongo(put: Put, revision: int) -> Filter:
    """A document as it is stored. The body is bytes, so that it is never decoded on the way."""
    texts = {f"t_{name}": fold(value) for name, value in put.fields.items() if isinstance(value, str)}
    fields = {f"f_{name}": value for name, value in put.fields.items()}
    return {"_id": put.id, "revision": revision, **fields, **texts, "unique": dict(put.unique), "body": bytes(put.body)}


def conditions(where: Where) -> list[Filter]:
    """The filters of a condition, all of which must be true."""
    return [
        *({f"f_{name}": {"$in": list(values)}} for name, values in where.any_of.items()),
        *({f"f_{name}": {"$nin": list(values)}} for name, values in where.none_of.items()),
        *([_one_of(where.either)] if where.either else []),
        *({f"f_{name}": {"$gte": bound}} for name, bound in where.at_least.items()),
        *({f"f_{name}": {"$lt": bound}} for name, bound in where.below.items()),
        *({f"t_{name}": {"$regex": re.escape(fold(text))}} for name, text in where.contains.items()),
        *(
            {f"t_{name}": {"$regex": re.escape(fold(text))}}
            for name, texts in where.contains_all.items()
            for text in texts
        ),
    ]


def _one_of(choices: Mapping[str, Sequence[FieldValue]]) -> Filter:
    return {"$or": [{f"f_{name}": {"$in": list(values)}} for name, values in choices.items()]}


def all_of(filters: Sequence[Filter]) -> Filter:
    """One filter that requires all of them."""
    return {"$and": list(filters)} if filters else {}


def after_position(sort: Sort, position: PagePosition) -> Filter:
    """The documents after a position in the order."""
    operator = "$lt" if sort.descending else "$gt"
    if sort.by is None:
        return {"_id": {operator: position.id}}
    field, value = f"f_{sort.by}", position.value
    rank = order_key(value)[0]
    others = _TYPES[:rank] if sort.descending else _TYPES[rank + 1 :]
    branches: list[Filter] = [{field: value, "_id": {operator: position.id}}]
    if value is not None:
        branches.append({field: {operator: value}})
    if "null" in others:
        branches.append({field: None})  # older documents lack a field that was declared later, which counts as None
    if named := [name for name in others if name != "null"]:
        branches.append({field: {"$type": named}})
    return {"$or": branches}


def sort_order(sort: Sort) -> list[tuple[str, int]]:
    """The sort order of a list."""
    direction = -1 if sort.descending else 1
    return [*([(f"f_{sort.by}", direction)] if sort.by else []), ("_id", direction)]


def page_hint(kind: Kind, where: Where, sort: Sort, *, is_broad: bool = False) -> str | None:
    """The index to read a list from; None: MongoDB chooses.

    Of a broad search, one that matches many documents, the first in order are soon found in the index of the order.
    From the index for searches, all that match would be read and sorted.
    """
    if _is_search(kind, where):
        return field_index(sort.by) if is_broad and sort.by is not None else search_index(kind)
    field = kind.index_for(where)
    return None if field is None else field_index(field)


def count_pipeline(fields: Sequence[str], where: Where, sums: Sequence[str]) -> list[Filter]:
    """Groups with their values in `_id`, the count in `n`, the sums in `s0`, `s1`, …"""
    totals = {f"s{number}": {"$sum": f"$f_{name}"} for number, name in enumerate(sums)}
    group = {"_id": {name: f"$f_{name}" for name in fields}, "n": {"$sum": 1}, **totals}
    return [{"$match": all_of(conditions(where))}, {"$group": group}]


def count_hint(kind: Kind, fields: Sequence[str], where: Where, sums: Sequence[str]) -> str | None:
    """The index that covers a count. Without a condition, MongoDB would not choose it."""
    needed = {*fields, *sums, *where.any_of, *where.none_of, *where.either, *where.at_least, *where.below}
    if _is_search(kind, where) and needed <= set(kind.listed):
        return search_index(kind)
    return (
        grouped_index(kind)
        if needed and needed <= set(kind.grouped) and not where.contains and not where.contains_all
        else None
    )


def _is_search(kind: Kind, where: Where) -> bool:
    """Whether every text that is searched is in the index for searches."""
    texts = {*where.contains, *where.contains_all}
    return bool(kind.listed) and bool(texts) and texts <= set(kind.searched)
