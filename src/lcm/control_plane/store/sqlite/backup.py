"""Copies an SQLite store that is in use: `python -m lcm.control_plane.store.sqlite.backup FROM TO`.

The newest changes are in a second file, the write-ahead log, until a checkpoint. A plain copy of the store file lacks
them, and a copy of both files may be inconsistent. This backup reads both at one point in time and blocks no writer.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lcm.control_plane.store.sqlite.database import APPLICATION_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

_USAGE = "usage: python -m lcm.control_plane.store.sqlite.backup FROM TO"
OK, FAILED, WRONG_USAGE = 0, 1, 2


class BackupError(Exception):
    """The backup failed; the message gives the cause."""


def back_up(source: Path, target: Path) -> int:
    """Copy the store to a file that must not exist yet, and check the copy; returns its size in bytes."""
    if target.exists():
        raise BackupError(f"{target} already exists: choose another file")
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        # Readable by its owner only from the first byte on: it contains tokens and encrypted secrets.
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        _copy(source, draft)
        draft.rename(target)
    except sqlite3.Error as error:
        raise BackupError(f"{source} cannot be copied: {error}") from error
    except OSError as error:
        raise BackupError(f"{target} cannot be written: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)
    return target.stat().st_size


def _copy(source: Path, draft: Path) -> None:
    """Opens the source read-only: a connection that can write might checkpoint beside the writer."""
    reader = sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)
    writer = sqlite3.connect(draft)
    try:
        (application,) = reader.execute("PRAGMA application_id").fetchone()
        if application != APPLICATION_ID:
            raise BackupError(f"{source} is not an LCM store")
        reader.backup(writer)  # in one step, so from one point in time
        writer.execute("PRAGMA journal_mode = DELETE")  # the copy is one file
        (verdict,) = writer.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise BackupError(f"the copy of {source} is corrupt: {verdict}")
    finally:
        writer.close()
        reader.close()


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit code."""
    if len(arguments) != 2:
        sys.stderr.write(f"{_USAGE}\n")
        return WRONG_USAGE
    source, target = (Path(argument).expanduser() for argument in arguments)
    try:
        size = back_up(source, target)
    except BackupError as problem:
        sys.stderr.write(f"{problem}\n")
        return FAILED
    sys.stdout.write(f"{target}: {size} bytes, checked\n")
    return OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
