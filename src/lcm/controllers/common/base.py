"""Writes to the control plane in the name of a leader."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from lcm.client.errors import StaleLeader
from lcm.core.controller.leader_election import StaleTerm

if TYPE_CHECKING:
    from collections.abc import Awaitable

R = TypeVar("R")


async def told(write: Awaitable[R]) -> R:
    """The answer to a write; a newer leader is told in the words of the election."""
    try:
        return await write
    except StaleLeader as error:
        raise StaleTerm(str(error)) from error
