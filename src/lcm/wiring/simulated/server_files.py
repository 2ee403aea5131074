"""The simulated CML servers of `lcm up` on disk: a file for each, and one for the account that counts licences."""

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
# What reading a file that somebody damaged, or that another version wrote, may raise.
_UNREADABLE: Final = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)


class ServerFiles:
    """The files, by the ids of machines. A file that cannot be used is told in a line, and its server begins anew."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[str, str] = {}
        self._too_large: set[str] = set()

    def open(self, machines: Collection[str]) -> None:
        """Make the folder, readable for nobody else, and drop what was kept of machines that are gone."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in self._folder.glob("i-*.json*"):
            if path.name.partition(".")[0] not in machines:
                path.unlink(missing_ok=True)

    def has(self, machine_id: str) -> bool:
        """Whether anything is kept of a machine's server."""
        return self._path(machine_id).exists()

    def restore(self, machine_id: str, world: World) -> bool:
        """Fill a fresh world with what was kept. False: it could not be, and the world is of no use any more."""
        try:
            text = self._read(machine_id)
            persistence.restore(world, json.loads(text))
        except _UNREADABLE as error:
            self._tell(machine_id, error)
            return False
        self._written[machine_id] = text
        if world.licensing.registered:
            world.account.holders.add(world.licensing.product_uuid)  # known there already, unless that file was lost
        return True

    def restore_account(self, account: SmartAccount) -> None:
        """Who holds a licence, and how many registrations there ever were."""
        if not self.has(_ACCOUNT):
            return
        try:
            stored = json.loads(self._read(_ACCOUNT))
            holders, ever = {str(holder) for holder in stored["holders"]}, int(stored["ever"])
        except _UNREADABLE as error:
            self._tell(_ACCOUNT, error)
            return
        account.holders, account.ever = holders, ever

    def save(self, worlds: Mapping[str, World], account: SmartAccount) -> None:
        """Write what has changed, and drop what belongs to nobody any more."""
        for machine_id, world in worlds.items():
            self._save(machine_id, self._bounded(machine_id, persistence.snapshot(world)))
        self._save(_ACCOUNT, _to_json({"holders": sorted(account.holders), "ever": account.ever}))
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
            log.warning(
                "a simulated CML server has too much in its labs; these will not outlive a restart", id=machine_id
            )
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
            "a simulated CML server's file cannot be used; it begins anew", file=str(self._path(name)), error=reason
        )

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"


def _to_json(stored: Mapping[str, Any]) -> str:
    """What YAML knows and JSON does not is written as text, or left out."""
    return json.dumps(stored, separators=(",", ":"), default=str, skipkeys=True)
