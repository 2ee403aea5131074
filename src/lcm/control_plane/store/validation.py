"""Validation of input, the same for every adapter: a mistake raises `ValueError` before anything happens."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lcm.control_plane.store.port import Guard, Kind, Put
from lcm.control_plane.store.values import InvalidValueError, check_text, check_value, to_micros

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.control_plane.store.port import Delete, NewJournalEntry, Sample, Sort, Where

MAX_ROWS = 10_000
MAX_SKIPPED = 1_000_000
MAX_TOPICS = 100
MAX_ID_LENGTH = 512
MAX_BODY_BYTES = 4 * 1024 * 1024

_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")


class KindRegistry:
    """The kinds that the store was opened with, and the checks against them."""

    def __init__(self, kinds: Sequence[Kind] = ()) -> None:
        self._kinds: dict[str, Kind] = {}
        for kind in kinds:
            _check_kind(kind)
            if self._kinds.setdefault(kind.name, kind) != kind:
                raise ValueError(f"kind {kind.name} is declared twice")

    def check(self, kind: Kind) -> None:
        """Raise unless the kind was declared exactly like this."""
        if self._kinds.get(kind.name) != kind:
            raise ValueError(f"the store was not opened with this declaration of kind {kind.name}")

    def check_commit(
        self, writes: Sequence[Put | Delete], entries: Sequence[NewJournalEntry], guards: Sequence[Guard]
    ) -> None:
        """Raise unless every part can be stored and each document occurs once."""
        seen: set[tuple[str, str]] = set()
        for part in (*guards, *writes):
            self.check(part.kind)
            check_id(part.id)
            if (key := (part.kind.name, part.id)) in seen:
                raise ValueError(f"{part.kind.name} {part.id} occurs twice in one commit")
            seen.add(key)
            if isinstance(part, Put):
                _check_put(part)
        for entry in entries:
            check_text(entry.topic, "a topic")
            check_text(entry.subject, "a subject")
            check_text(entry.team, "a team")
            check_text(entry.owner, "an owner")
            _check_body(entry.body)
            to_micros(entry.at)

    def check_query(self, kind: Kind, where: Where, limit: int = 1, sort: Sort | None = None, skip: int = 0) -> None:
        """Raise unless only declared fields are used."""
        self.check(kind)
        check_limit(limit)
        if not 0 <= skip <= MAX_SKIPPED:
            raise ValueError(f"skip must be 0 to {MAX_SKIPPED}, not {skip}")
        if sort is not None and sort.by is not None:
            check_fields(kind, (sort.by,))
        for lists in (where.any_of, where.none_of, where.either):
            check_fields(kind, lists)
            for name, values in lists.items():
                for value in values:
                    check_value(value, name)
        for bounds in (where.at_least, where.below):
            check_fields(kind, bounds)
            for name, bound in bounds.items():
                check_value(bound, name)
                if bound is None:
                    raise ValueError(f"{name}: a bound must not be None")
        check_fields(kind, (*where.contains, *where.contains_all))
        texts = [*where.contains.items(), *((name, each) for name, all_ in where.contains_all.items() for each in all_)]
        for name, text in texts:
            check_text(text, name)


def check_id(document_id: str) -> None:
    """Raise unless it is a valid id."""
    check_text(document_id, "an id")
    if not 1 <= len(document_id) <= MAX_ID_LENGTH:
        raise InvalidValueError(f"an id must have 1 to {MAX_ID_LENGTH} characters")


def check_ids(document_ids: Sequence[str]) -> None:
    """Raise unless all ids are valid and not too many for one query."""
    if len(document_ids) > MAX_ROWS:
        raise InvalidValueError(f"at most {MAX_ROWS} documents can be read at once, not {len(document_ids)}")
    for document_id in document_ids:
        check_id(document_id)


def check_fields(kind: Kind, names: object) -> None:
    """Raise unless the kind declares all of them."""
    unknown = sorted(set(names) - set(kind.fields))  # type: ignore[call-overload]
    if unknown:
        raise ValueError(f"kind {kind.name} declares no field {', '.join(unknown)}")


def check_unique(kind: Kind, name: str, value: str) -> None:
    """Raise unless the kind declares the field as unique and the value is valid."""
    if name not in kind.unique:
        raise ValueError(f"kind {kind.name} declares no unique {name}")
    check_text(value, name)


def check_limit(limit: int) -> None:
    """Raise unless the number of rows is bounded: one long query would block the store for others."""
    if not 1 <= limit <= MAX_ROWS:
        raise ValueError(f"a limit must be 1 to {MAX_ROWS}, not {limit}")


def check_journal_query(topics: Sequence[str], subjects: Sequence[str], limit: int) -> None:
    """Raise unless indexes can serve the filter."""
    check_limit(limit)
    if max(len(topics), len(subjects)) > MAX_TOPICS:
        raise InvalidValueError(f"at most {MAX_TOPICS} topics or subjects can be queried at once")
    for text in (*topics, *subjects):
        check_text(text, "a topic or subject")


def check_trim(topic: str, limit: int) -> None:
    """Raise unless topic and limit are valid."""
    check_text(topic, "a topic")
    check_limit(limit)


def check_samples(series: str, samples: Sequence[Sample]) -> None:
    """Raise unless every sample can be stored."""
    check_text(series, "a series")
    for sample in samples:
        check_text(sample.subject, "a subject")
        _check_body(sample.body)
        to_micros(sample.at)


def check_series_query(series: str, subject: str, limit: int) -> None:
    """Raise unless series, subject and limit are valid."""
    check_text(series, "a series")
    check_text(subject, "a subject")
    check_limit(limit)


def check_downsample(series: str, keep_every_seconds: int) -> None:
    """Raise unless series and interval are valid."""
    check_text(series, "a series")
    if keep_every_seconds < 0:
        raise ValueError("an interval must be 0 seconds or more")


def _check_kind(kind: Kind) -> None:
    for name in (kind.name, *kind.fields, *kind.unique):
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a valid name of a kind or field")
    if len(set(kind.fields)) < len(kind.fields) or len(set(kind.unique)) < len(kind.unique):
        raise ValueError(f"kind {kind.name} declares a field twice")
    check_fields(kind, (*kind.grouped, *kind.searched))


def _check_put(put: Put) -> None:
    _check_body(put.body)
    check_fields(put.kind, put.fields)
    if missing := sorted(set(put.kind.fields) - set(put.fields)):
        raise ValueError(f"{put.kind.name} {put.id} lacks the fields {', '.join(missing)}")
    for name, value in put.fields.items():
        check_value(value, name)
    for name, value in put.unique.items():
        check_unique(put.kind, name, value)


def _check_body(body: bytes) -> None:
    if len(body) > MAX_BODY_BYTES:
        raise ValueError(f"a body must have at most {MAX_BODY_BYTES} bytes, not {len(body)}")
