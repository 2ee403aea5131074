"""Which installation this is: an id that is made once and kept in the store, for all control planes on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.kinds import INSTALLATION
from lcm.control_plane.store.port import Put
from lcm.core import clock
from lcm.model.fleet.state import Installation
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import Store


class InstallationMismatchError(Exception):
    """LCM_INSTALLATION_ID names another installation than the one that the store belongs to."""

    def __init__(self, given: str, stored: str) -> None:
        super().__init__(
            f'LCM_INSTALLATION_ID="{given}": the store belongs to the installation {stored}, whose instances would no'
            f" longer be known as ours; unset LCM_INSTALLATION_ID, set it to {stored},"
            f" or name the store of {given} in STORE_URL"
        )


async def ensure_installation(change: Transaction, given: str | None) -> Installation:
    """The id of this installation, made and stored by the first start.

    Of two that start at once on one store the second to commit runs again, and finds the id of the first.
    """
    known = await _read_stored(change.store)
    if known is None:
        settled = Installation(installation_id=given or clock.new_id("lcm"))
        change.write(Put(INSTALLATION, INSTALLATION.name, settled.model_dump_json().encode(), None))
        change.audit("installation_named", settled.installation_id)
        return settled
    if given is not None and given != known.installation_id:
        raise InstallationMismatchError(given, known.installation_id)
    return known


async def read_installation(store: Store) -> Installation:
    """The id of this installation."""
    known = await _read_stored(store)
    if known is None:
        raise ProblemError(
            ProblemCode.UNAVAILABLE, "the installation has no id yet; the start of the control plane makes it"
        )
    return known


async def _read_stored(store: Store) -> Installation | None:
    stored = await store.get(INSTALLATION, INSTALLATION.name)
    return None if stored is None else Installation.model_validate_json(stored.body)
