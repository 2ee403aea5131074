"""Ids and secrets of the simulated world, from the one source of chance."""

from __future__ import annotations

import uuid

from lcm.core import clock


def new_uuid() -> str:
    """A random UUID, as CML names everything."""
    return str(uuid.UUID(int=clock.chance().getrandbits(128), version=4))


def new_mac() -> str:
    """An address in the range of virtual network cards."""
    tail = clock.chance().getrandbits(24)
    return f"52:54:00:{tail >> 16 & 255:02x}:{tail >> 8 & 255:02x}:{tail & 255:02x}"
