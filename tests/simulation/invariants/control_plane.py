"""Invariants of the control plane: it accepts commands whenever its store works, and controllers hear of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.client.errors import ProtocolError, ServerError, ServiceUnavailableError

if TYPE_CHECKING:
    from collections.abc import Collection

    from lcm.client.errors import ClientError
    from tests.simulation.world.platform import Platform


def refusal(platform: Platform) -> str | None:
    """Why a load balancer would send no request to the control plane although it runs; its store always works."""
    plane = platform.nodes["plane"]
    if plane.dead or plane.paused_until is not None:
        return None
    reasons = [reason for service in platform.plane_services for reason in service.readiness()]
    return f"the control plane is not ready for commands: {reasons[0]}" if reasons else None


def is_refusal(error: ClientError) -> bool:
    """Whether the control plane refused a command because of its own state, or sent what its client cannot read.

    Its store always works.
    """
    return isinstance(error, ServerError | ServiceUnavailableError | ProtocolError)


def missing_keys(platform: Platform, worker_ids: Collection[str]) -> list[str]:
    """Workers of these that are not TERMINATED and have no key in etcd."""
    records = platform.ledger.records
    live = [each for each in worker_ids if records[each]["status"] != "TERMINATED"]
    return sorted(each for each in live if platform.etcd.state.get(f"/workers/{each}") is None)
