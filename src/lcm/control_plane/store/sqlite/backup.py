"""A copy of an SQLite store while a control plane uses it: `python -m lcm.control_plane.store.sqlite.backup FROM TO`.

The newest changes stand in a second file beside the store, the log, until they are moved over. A plain copy of the
store alone lacks them, and one of both may be torn. This reads both as one, as they were at one moment, and nobody has
to wait for it.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lcm.control_plane.store.sqlite.schema import APPLICATION_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

_USAGE = "usage: python -m lcm.control_plane.store.sqlite.backup FROM TO"
OK, FAILED, WRONG_USAGE = 0, 1, 2


class BackupError(Exception):
    """There is no copy; the text says why."""


def back_up(source: Path, target: Path) -> int:
    """Copy the store to a file that must not exist yet, check the copy, and say how many bytes it has."""
    if target.exists():
        raise BackupError(f"{target} exists: name a file that does not")
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        # For its owner alone from the first byte on: there are tokens and encrypted secrets in it.
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
    """Read only: a connection that could write might move the log over beside the one that does."""
    reading = sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)
    writing = sqlite3.connect(draft)
    try:
        (application,) = reading.execute("PRAGMA application_id").fetchone()
        if application != APPLICATION_ID:
            raise BackupError(f"{source} is not a store of LCM")
        reading.backup(writing)  # in one step, so under one look at the file
        writing.execute("PRAGMA journal_mode = DELETE")  # the copy is one file
        (verdict,) = writing.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise BackupError(f"the copy of {source} is damaged: {verdict}")
    finally:
        writing.close()
        reading.close()


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
