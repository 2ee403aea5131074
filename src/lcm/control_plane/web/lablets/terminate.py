"""What the end of a lablet means, told before anybody confirms it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lcm.control_plane.lablets.lifecycle import NOTHING_ON_CML
from lcm.control_plane.web.workers.action_preview import Consequences
from lcm.model.formatting import span
from lcm.model.lablet.status import FINAL, LabletStatus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Hold

END: Final = "end"
_MOST_NAMED = 5


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


def loss_of(lablets: Sequence[Lablet]) -> str:
    """What the end of several takes from their owners; nothing where no lab was made yet."""
    made = [each for each in lablets if each.status not in NOTHING_ON_CML]
    nodes = sum(each.requirements.nodes for each in made)
    owners = sorted({each.owner for each in made})
    named = ", ".join(owners[:_MOST_NAMED]) + (f" and {len(owners) - _MOST_NAMED} more" if owners[_MOST_NAMED:] else "")
    labs = "1 lab" if len(made) == 1 else f"{len(made)} labs"
    return f"{labs} with {nodes} node{'' if nodes == 1 else 's'}, and all that {named} did in them." if made else ""


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
