"""Applies one commit on the writer's connection, inside a savepoint."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from lcm.control_plane.store.adapter_rules import released_unique_values, require_commit_allowed
from lcm.control_plane.store.cursors import journal_cursor
from lcm.control_plane.store.port import Put
from lcm.control_plane.store.sqlite.database import body_table, document_table
from lcm.control_plane.store.sqlite.queries import folded_column, to_column
from lcm.control_plane.store.values import to_micros

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from lcm.control_plane.store.adapter_rules import Commit
    from lcm.control_plane.store.port import Delete, Kind


def apply_commit(connection: sqlite3.Connection, commit: Commit) -> Sequence[str]:
    """Check and write a commit; returns the cursors of its entries."""
    view = _ConnectionView(connection)
    require_commit_allowed(commit, view)
    revision, cursor = connection.execute(
        "UPDATE head SET revision = revision + 1, cursor = cursor + ? RETURNING revision, cursor",
        (len(commit.entries),),
    ).fetchone()
    for write in commit.writes:
        for name, value in released_unique_values(write, view):
            connection.execute(
                "DELETE FROM uniques WHERE kind = ? AND field = ? AND value = ?", (write.kind.name, name, value)
            )
    for write in commit.writes:
        _write(connection, write, revision)
    numbers = range(cursor - len(commit.entries) + 1, cursor + 1)
    connection.executemany(
        "INSERT INTO journal (cursor, topic, subject, at, body, team, owner) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (number, entry.topic, entry.subject, to_micros(entry.at), entry.body, entry.team, entry.owner)
            for number, entry in zip(numbers, commit.entries, strict=True)
        ],
    )
    return [journal_cursor(number) for number in numbers]


class _ConnectionView:
    """The documents after the previous commits, including those of the same transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def revision(self, kind: Kind, document_id: str) -> int | None:
        sql = f"SELECT revision FROM {document_table(kind)} WHERE id = ?"  # noqa: S608 - the name of a declared kind
        row = self._connection.execute(sql, (document_id,)).fetchone()
        return row[0] if row else None

    def unique_values(self, kind: Kind, document_id: str) -> Mapping[str, str]:
        if not kind.unique:
            return {}
        sql = "SELECT field, value FROM uniques WHERE kind = ? AND owner = ?"
        return dict(self._connection.execute(sql, (kind.name, document_id)).fetchall())

    def owner(self, kind: Kind, field_name: str, value: str) -> str | None:
        sql = "SELECT owner FROM uniques WHERE kind = ? AND field = ? AND value = ?"
        row = self._connection.execute(sql, (kind.name, field_name, value)).fetchone()
        return row[0] if row else None


def _write(connection: sqlite3.Connection, write: Put | Delete, revision: int) -> None:
    statements = _statements(write.kind)
    if not isinstance(write, Put):
        connection.execute(statements.delete_body, (write.id,))
        connection.execute(statements.delete, (write.id,))
        return
    values = [write.fields[name] for name in write.kind.fields]
    columns = tuple(to_column(value) for value in values)
    texts = tuple(folded_column(value) for value in values)
    if write.expected is None:
        inserted = connection.execute(statements.insert, (write.id, revision, *columns, *texts))
        connection.execute(statements.insert_body, (inserted.lastrowid, write.body))
    else:
        number, *present = connection.execute(statements.fields, (write.id,)).fetchone()
        connection.execute(statements.update_body, (write.body, number))
        if tuple(present) == columns:
            # An UPDATE rewrites the indexes of every column it names, changed or not. Most writes change no field.
            connection.execute(statements.update_revision, (revision, number))
        else:
            connection.execute(statements.update, (revision, *columns, *texts, number))
    if write.unique:
        connection.executemany(
            "INSERT OR IGNORE INTO uniques VALUES (?, ?, ?, ?)",
            [(write.kind.name, name, value, write.id) for name, value in write.unique.items()],
        )


class _Statements:
    """The SQL of a kind, built once."""

    def __init__(self, kind: Kind) -> None:
        name, apart = document_table(kind), body_table(kind)
        columns = [*(f"f_{field}" for field in kind.fields), *(f"t_{field}" for field in kind.fields)]
        named = ", ".join(["id", "revision", *columns])
        assignments = ", ".join(f"{column} = ?" for column in ["revision", *columns])
        marks = ", ".join("?" * (2 + len(columns)))
        number = f"(SELECT n FROM {name} WHERE id = ?)"  # noqa: S608 - names of a declared kind, here and below
        self.insert = f"INSERT INTO {name} ({named}) VALUES ({marks})"  # noqa: S608
        self.insert_body = f"INSERT INTO {apart} (n, body) VALUES (?, ?)"  # noqa: S608
        self.fields = f"SELECT {', '.join(['n', *columns[: len(kind.fields)]])} FROM {name} WHERE id = ?"  # noqa: S608
        self.update = f"UPDATE {name} SET {assignments} WHERE n = ?"  # noqa: S608
        self.update_revision = f"UPDATE {name} SET revision = ? WHERE n = ?"  # noqa: S608
        self.update_body = f"UPDATE {apart} SET body = ? WHERE n = ?"  # noqa: S608
        self.delete_body = f"DELETE FROM {apart} WHERE n = {number}"  # noqa: S608
        self.delete = f"DELETE FROM {name} WHERE id = ?"  # noqa: S608


_statements = lru_cache(maxsize=64)(_Statements)
