"""SQLite's errors in words for whoever runs the control plane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.store.port import StoreUnavailable

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

_WORDS = {
    "SQLITE_FULL": "the disk is full; nothing was written. Free some space",
    "SQLITE_READONLY": "the file or its folder cannot be written. Check its owner and permissions",
    "SQLITE_PERM": "the file or its folder cannot be written. Check its owner and permissions",
    "SQLITE_CANTOPEN": "the file cannot be opened or made. Check that its folder exists and can be written",
    "SQLITE_CORRUPT": "the file is damaged. Restore a backup",
    "SQLITE_NOTADB": "the file is not a store, or it is damaged. Name another file or restore a backup",
    "SQLITE_BUSY": "the file is held by another program. End it",
    "SQLITE_LOCKED": "the file is held by another program. End it",
    "SQLITE_IOERR": "the disk failed to read or write. Check the disk",
}


def in_words(path: Path, error: sqlite3.Error) -> StoreUnavailable:
    """What happened to the file, why, and what to do."""
    name = str(getattr(error, "sqlite_errorname", ""))
    words = next((words for known, words in _WORDS.items() if name.startswith(known)), "SQLite failed")
    return StoreUnavailable(f"{path}: {words} ({error})")
