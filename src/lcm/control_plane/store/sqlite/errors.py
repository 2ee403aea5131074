"""SQLite's errors in words for whoever runs the control plane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.store.port import StoreUnavailableError

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

_EXPLANATIONS = {
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


def translate_error(path: Path, error: sqlite3.Error) -> StoreUnavailableError:
    """What happened to the file, why, and what to do."""
    name = str(getattr(error, "sqlite_errorname", ""))
    words = next((words for known, words in _EXPLANATIONS.items() if name.startswith(known)), "SQLite failed")
    return StoreUnavailableError(f"{path}: {words} ({error})")
