"""What one worker of a run makes and all use."""

from __future__ import annotations

import fcntl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def once(path: Path, make: Callable[[], str]) -> str:
    """The text of this file. The first process that asks makes it, and the others wait for it."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # let go when the file is closed, also by the end of a killed process
        if not path.exists():
            draft = path.with_suffix(".draft")
            draft.write_text(make())
            draft.rename(path)
        return path.read_text()
