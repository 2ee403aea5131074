"""Keys as etcd has them (bytes, ranges) and as we have them (text, prefixes)."""

from __future__ import annotations

from typing import Any

from lcm.core.coordination import KeyValue

# A single zero byte means "from the first key" as a start and "to the last key" as an end.
_OPEN = b"\0"

# Others may have written keys that are not UTF-8: they survive the way to text and back.
_FOREIGN = "surrogateescape"


def to_bytes(key: str) -> bytes:
    """The key as etcd has it."""
    if not key:
        raise ValueError("a key must not be empty")
    return key.encode(errors=_FOREIGN)


def to_text(key: bytes) -> str:
    """The key as we have it."""
    return key.decode(errors=_FOREIGN)


def prefix_range(prefix: str) -> tuple[bytes, bytes]:
    """First key and end (exclusive) of all keys that start with `prefix`."""
    start = prefix.encode(errors=_FOREIGN)
    stem = start.rstrip(b"\xff")
    return start or _OPEN, stem[:-1] + bytes([stem[-1] + 1]) if stem else _OPEN


def key_value(kv: Any) -> KeyValue:
    """etcd's record as ours."""
    return KeyValue(to_text(kv.key), kv.value, kv.create_revision, kv.mod_revision, kv.lease)
