"""One process at a time owns a store file."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

from lcm.control_plane.store.port import StoreError

if TYPE_CHECKING:
    from pathlib import Path


class ProcessLock:
    """A lock beside the file. The kernel lets it go when the process ends, however it ends.

    SQLite's own locks are not enough: before 3.51.3 two processes that both write or checkpoint can damage the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock_path = path.with_name(f"{path.name}.lock")
        self._descriptor: int | None = None

    def take(self) -> None:
        """Own the file, or raise with the process that does."""
        try:
            descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(
                f"{self._path}: the file or its folder cannot be written ({error.strerror})."
                " Check that the folder exists, its owner and permissions"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise StoreError(
                f"{self._path} is in use by process {owner}: only one control plane can have it."
                " End that one or use MongoDB"
            ) from None
        # The file stays when the lock is let go: removing it would let two processes lock two files of one name.
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Let others have the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
