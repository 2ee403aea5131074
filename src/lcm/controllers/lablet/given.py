"""What a lablet controller is given: whom it works with, and what it is told once, at the start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lcm.controllers.lablet.deps import Policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.client.client import Client
    from lcm.cml.client.cml_session import Session
    from lcm.cml.types import Credentials
    from lcm.model.worker.record import Worker


@dataclass(frozen=True, slots=True)
class Outside:
    """What the controller works with: the control plane, and the way to the CML servers."""

    control: Client
    session: Session
    forget: Callable[[str], None]  # drops what is known of an address, because another machine has it now


@dataclass(frozen=True, slots=True)
class Rules:
    """What it is told once, at the start."""

    account: Credentials
    policy: Policy = field(default_factory=Policy)
    sweep_interval: float = 600.0
    private_addresses: bool = False

    def address_of(self, worker: Worker) -> str | None:
        """Under which address a worker's CML is dialled."""
        if self.private_addresses:
            return worker.private_ip
        return worker.public_ip or worker.private_ip
