"""What the end of a lablet means, told before anybody confirms it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lcm.control_plane.web.consequences import Consequences
from lcm.model.lablet_status import FINAL, LabletStatus
from lcm.model.wording import span

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.lablet import Lablet
    from lcm.model.worker import Hold

END: Final = "end"


def foresee_end(lablet: Lablet, worker_name: str, hold: Hold | None, now: datetime) -> Consequences:
    """What ending it would do now. `hold`: what keeps its worker's labs as they are."""
    if lablet.status in FINAL:
        return Consequences(END, changes=False, happens=f"It has ended: it is {lablet.status}.")
    if not lablet.wanted:
        happens = "It is so already: it is to end, and its lab is being removed."
        return Consequences(END, changes=False, happens=happens)
    if lablet.status is LabletStatus.PENDING_SCHEDULING:
        return Consequences(
            END,
            happens="No more worker is looked for, and it is TERMINATED at once.",
            losses=(("Its lab", "none yet"),),
        )
    place = worker_name or "its worker"
    if lablet.status is LabletStatus.SCHEDULED:
        return Consequences(
            END,
            happens=f"What is reserved for it on {place} is given back, and it is TERMINATED at once.",
            losses=(("Its lab", "none yet"),),
        )
    held = f"{hold.by} holds {place} or the fleet: only after the release " if hold is not None else ""
    removed = f"its lab on {place} is stopped, wiped and deleted; then what is reserved for it there is given back."
    happens = f"{held}{removed}" if held else removed[0].upper() + removed[1:]
    return Consequences(END, happens=happens, losses=_losses(lablet, place, now))


def _losses(lablet: Lablet, place: str, now: datetime) -> tuple[tuple[str, str], ...]:
    nodes = f"{lablet.requirements.nodes} node{'' if lablet.requirements.nodes == 1 else 's'}"
    facts = [("Its lab", f"{nodes} on {place}, with all that {lablet.owner} did in them")]
    if lablet.running_since is not None:
        facts.append(("In use for", span(now - lablet.running_since)))
    addresses = [address for each in lablet.endpoints for address in each.addresses]
    if addresses:
        facts.append(("Addresses", ", ".join(addresses[:10]) + (" and more" if len(addresses) > 10 else "")))
    if lablet.ports:
        facts.append(("Ports", ", ".join(str(port) for port in sorted(lablet.ports.values()))))
    return tuple(facts)
