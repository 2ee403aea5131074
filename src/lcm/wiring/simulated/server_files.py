"""Files of the simulated CML servers of `lcm up`: one per server, and one for the license account."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

import structlog

from lcm.cml.simulator import persistence

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from lcm.cml.simulator.state.license import SmartAccount
    from lcm.cml.simulator.state.world import World

log = structlog.get_logger(__name__)

MAX_FILE_BYTES: Final = 4 * 1024 * 1024
_ACCOUNT: Final = "account"
# What reading a file may raise that is damaged or was written by another version.
_UNREADABLE: Final = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)


class ServerFiles:
    """The files by machine id. An unusable file is logged, and its server starts empty."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[str, str] = {}
        self._too_large: set[str] = set()

    def open(self, machines: Collection[str]) -> None:
        """Create the private folder, and delete files of machines that no longer exist."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in self._folder.glob("i-*.json*"):
            if path.name.partition(".")[0] not in machines:
                path.unlink(missing_ok=True)

    def has(self, machine_id: str) -> bool:
        """Whether there is a file for the machine."""
        return self._path(machine_id).exists()

    def restore(self, machine_id: str, world: World) -> bool:
        """Load the file into a new world. False if that failed; the world is then unusable."""
        try:
            text = self._read(machine_id)
            persistence.restore(world, json.loads(text))
        except _UNREADABLE as error:
            self._tell(machine_id, error)
            return False
        self._written[machine_id] = text
        if world.licensing.registered:
            world.account.holders.add(world.licensing.product_uuid)  # already there unless the account file was lost
        return True

    def restore_account(self, account: SmartAccount) -> None:
        """Load the license holders and the total number of registrations."""
        if not self.has(_ACCOUNT):
            return
        try:
            stored = json.loads(self._read(_ACCOUNT))
            holders, ever = {str(holder) for holder in stored["holders"]}, int(stored["ever"])
        except _UNREADABLE as error:
            self._tell(_ACCOUNT, error)
            return
        account.holders, account.total_registrations = holders, ever

    def save(self, worlds: Mapping[str, World], account: SmartAccount) -> None:
        """Write changed files, and delete files of machines that no longer exist."""
        for machine_id, world in worlds.items():
            self._save(machine_id, self._bounded(machine_id, persistence.snapshot(world)))
        self._save(_ACCOUNT, _to_json({"holders": sorted(account.holders), "ever": account.total_registrations}))
        for machine_id in self._written.keys() - worlds.keys() - {_ACCOUNT}:
            self._path(machine_id).unlink(missing_ok=True)
            del self._written[machine_id]

    def _bounded(self, machine_id: str, kept: dict[str, Any]) -> str:
        text = _to_json(kept)
        if len(text) <= MAX_FILE_BYTES:
            self._too_large.discard(machine_id)
            return text
        if machine_id not in self._too_large:
            self._too_large.add(machine_id)
            log.warning("the labs of a simulated CML server are too large to save; a restart loses them", id=machine_id)
        return _to_json({**kept, "labs": []})

    def _save(self, name: str, text: str) -> None:
        if self._written.get(name) == text:
            return
        path = self._path(name)
        draft = path.with_name(path.name + ".new")
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        self._written[name] = text

    def _read(self, name: str) -> str:
        path = self._path(name)
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ValueError(f"larger than {MAX_FILE_BYTES} bytes")
        return path.read_text(encoding="utf-8")

    def _tell(self, name: str, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        log.warning(
            "the file of a simulated CML server cannot be used; the server starts empty",
            file=str(self._path(name)),
            error=reason,
        )

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"


def _to_json(stored: Mapping[str, Any]) -> str:
    """Serialize to JSON; values that JSON lacks are written as text or left out."""
    return json.dumps(stored, separators=(",", ":"), default=str, skipkeys=True)
