"""Queries of the port as SQL.

None is stored as minus infinity, which callers cannot store: below every other value and equal to itself, so that
sorting, paging and conditions need no special case for NULL. A boolean is stored as one byte: above text, not a number.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from lcm.control_plane.store.sqlite.database import body_table, document_table, field_index, search_index
from lcm.control_plane.store.values import fold

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lcm.control_plane.store.cursors import PagePosition
    from lcm.control_plane.store.port import FieldValue, Kind, Sort, Where

Column: TypeAlias = "str | int | float | bytes"

NONE_COLUMN = -math.inf
_NUMBERS_END = ""  # SQLite orders numbers, text, bytes; these are the lowest text and the lowest bytes
_TEXT_END = b""


def to_column(value: FieldValue) -> Column:
    """A value as it is stored."""
    if value is None:
        return NONE_COLUMN
    if isinstance(value, bool):
        return b"\x01" if value else b"\x00"
    return value


def from_column(column: Column) -> FieldValue:
    """The value of a column."""
    if isinstance(column, bytes):
        return column == b"\x01"
    return None if column == NONE_COLUMN else column


def folded_column(value: FieldValue) -> str | None:
    """The text that `contains` searches."""
    return fold(value) if isinstance(value, str) else None


@dataclass(slots=True)
class SqlQuery:
    """SQL with its parameters."""

    sql: str
    parameters: list[Column] = field(default_factory=list)


def page_query(
    kind: Kind, where: Where, sort: Sort, position: PagePosition | None, limit: int, skip: int = 0
) -> SqlQuery:
    """Rows (id, revision, body, sort value). The inner query selects the page first, so that no body is sorted."""
    direction, beyond = ("DESC", "<") if sort.descending else ("ASC", ">")
    index = kind.index_for(where)
    condition = _conditions(where, index)
    # With the plus sign SQLite does not use an index of these columns, but the one that the condition needs.
    plus = "" if index is None else "+"
    if position is not None and sort.by:
        condition.sql += f" AND ({plus}f_{sort.by}, {plus}id) {beyond} (?, ?)"
        condition.parameters += [to_column(position.value), position.id]
    elif position is not None:
        condition.sql += f" AND {plus}id {beyond} ?"
        condition.parameters.append(position.id)
    columns = [f"f_{sort.by}", "id"] if sort.by else ["id"]
    inner = ", ".join(f"{plus}{column} {direction}" for column in columns)
    outer = ", ".join(f"d.{column} {direction}" for column in columns)
    value = f"d.f_{sort.by}" if sort.by else "NULL"
    sql = (
        f"SELECT d.id, d.revision, b.body, {value}"  # noqa: S608 - names come from declared kinds, checked when opened
        f" FROM (SELECT n FROM {_source(kind, where, index)} WHERE {condition.sql}"
        f" ORDER BY {inner} LIMIT ? OFFSET ?) AS page"
        f" CROSS JOIN {document_table(kind)} AS d ON d.n = page.n"
        f" JOIN {body_table(kind)} AS b ON b.n = page.n ORDER BY {outer}"
    )
    return SqlQuery(sql, [*condition.parameters, limit, skip])


def count_query(kind: Kind, fields: Sequence[str], where: Where, sums: Sequence[str]) -> SqlQuery:
    """Rows (values of the fields, count, sums)."""
    condition = _conditions(where)
    groups = ", ".join(f"f_{name}" for name in fields)
    totals = [f"TOTAL(CASE WHEN f_{name} > -9e999 AND f_{name} < '' THEN f_{name} END)" for name in sums]
    selected = ", ".join([*(f"f_{name}" for name in fields), "COUNT(*)", *totals])
    sql = f"SELECT {selected} FROM {_source(kind, where)} WHERE {condition.sql}"  # noqa: S608 - as above
    # Without GROUP BY an empty table would return one row for an empty group.
    return SqlQuery(f"{sql} GROUP BY {groups}" if fields else f"{sql} HAVING COUNT(*) > 0", condition.parameters)


def journal_query(
    after: int | None,
    before: int | None,
    topics: Sequence[str],
    subjects: Sequence[str],
    newest_first: bool,
    limit: int,
) -> SqlQuery:
    """Rows (cursor, topic, subject, at, body, team, owner), by subject or topic each from its index up to the limit."""
    direction = "DESC" if newest_first else "ASC"
    shared = SqlQuery("1")
    if after is not None:
        shared.sql += " AND cursor > ?"
        shared.parameters.append(after)
    if before is not None:
        shared.sql += " AND cursor < ?"
        shared.parameters.append(before)
    if subjects and topics:
        shared.sql += f" AND +topic IN ({_placeholders(topics)})"
        shared.parameters += topics
    column = "subject" if subjects else "topic"
    branches: list[str] = []
    parameters: list[Column] = []
    keys: list[list[Column]] = [[key] for key in sorted(set(subjects or topics))]
    for key in keys or [[]]:
        condition = f"{column} = ? AND {shared.sql}" if key else shared.sql
        parameters += [*key, *shared.parameters, limit]
        branches.append(
            "SELECT * FROM (SELECT cursor, topic, subject, at, body, team, owner FROM journal"  # noqa: S608 - only constants
            f" WHERE {condition} ORDER BY cursor {direction} LIMIT ?)"
        )
    return SqlQuery(f"{' UNION ALL '.join(branches)} ORDER BY cursor {direction} LIMIT ?", [*parameters, limit])


def _source(kind: Kind, where: Where, index: str | None = None) -> str:
    """The table, and the index to read: for a search the one that has its texts, or else the one of a field."""
    if any(texts for name, texts in where.contains_all.items() if name in kind.searched):
        return f"{document_table(kind)} INDEXED BY {search_index(kind)}"
    return document_table(kind) if index is None else f"{document_table(kind)} INDEXED BY {field_index(kind, index)}"


def _conditions(where: Where, index: str | None = None) -> SqlQuery:
    query = SqlQuery("1")
    for sql, parameters in (*_each_condition(where, index), *_either(where)):
        query.sql += f" AND {sql}"
        query.parameters += parameters
    return query


def _each_condition(where: Where, index: str | None) -> Iterator[tuple[str, list[Column]]]:
    for name, values in where.any_of.items():
        yield f"f_{name} IN ({_placeholders(values)})", [to_column(value) for value in values]
    for name, values in where.none_of.items():
        columns = [to_column(value) for value in values]
        yield (
            _outside(f"f_{name}", columns) if name == index else (f"f_{name} NOT IN ({_placeholders(values)})", columns)
        )
    for name, bound in where.at_least.items():
        yield f"f_{name} >= ?", [to_column(bound)]
        if not isinstance(bound, bool):
            yield f"f_{name} < ?", [_TEXT_END if isinstance(bound, str) else _NUMBERS_END]
    for name, bound in where.below.items():
        yield f"f_{name} < ?", [to_column(bound)]
        if isinstance(bound, (bool, str)):
            yield f"f_{name} >= ?", [_NUMBERS_END if isinstance(bound, str) else _TEXT_END]
        else:
            yield f"f_{name} > ?", [NONE_COLUMN]
    for name, text in where.contains.items():
        yield f"instr(t_{name}, ?) > 0", [fold(text)]
    for name, texts in where.contains_all.items():
        for text in texts:
            yield f"instr(t_{name}, ?) > 0", [fold(text)]


def _either(where: Where) -> Iterator[tuple[str, list[Column]]]:
    if where.either:
        choices = [f"f_{name} IN ({_placeholders(values)})" for name, values in where.either.items()]
        yield f"({' OR '.join(choices)})", [to_column(value) for values in where.either.values() for value in values]


def _outside(column: str, values: list[Column]) -> tuple[str, list[Column]]:
    """NOT IN as ranges between the values, which an index can be read by: SQLite scans the table for NOT IN."""
    ordered = sorted(values, key=lambda value: (isinstance(value, bytes), isinstance(value, str), value))
    ranges, parameters = [f"{column} < ?"], ordered[:1]
    for low, high in itertools.pairwise(ordered):
        ranges.append(f"({column} > ? AND {column} < ?)")
        parameters += [low, high]
    return f"({' OR '.join([*ranges, f'{column} > ?'])})", [*parameters, ordered[-1]]


def _placeholders(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
