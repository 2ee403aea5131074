"""What lablets have taken of a worker."""

from __future__ import annotations

from lcm.model.base import Answer


class Allocation(Answer):
    """What lablets have taken of a worker. It moves with the worker's version, in the commit that reserves."""

    cpu_cores: float = 0
    memory_gb: float = 0
    storage_gb: float = 0
    nodes: int = 0
    lablets: int = 0
    ports: tuple[int, ...] = ()
