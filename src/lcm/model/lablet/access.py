"""How to reach a lablet: its host, the forwarded ports of each node with a command to copy, and CML's page of the lab.

CML forwards ports of its server to nodes by tags of the nodes (its tool is called PATty): `serial:PORT[:LINE]` to a
console, `vnc:PORT` to a screen, `pat:[tcp:|udp:]PORT:INSIDE` to a port of the node.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from pydantic import Field

from lcm.model.base import LenientModel
from lcm.model.formatting import format_instant
from lcm.model.lablet.ports import substitute_ports
from lcm.model.lablet.status import FINAL_LABLET_STATUSES, LabletStatus
from lcm.model.lablet.urgency import lablet_problem
from lcm.model.worker.conditions import ConditionType, is_condition_true
from lcm.model.worker.status import CML_STATUSES, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

AccessState = Literal["pending", "starting", "available", "unreachable", "released"]
PortKind = Literal["console", "vnc", "tcp", "udp"]

_TAG = re.compile(r"(?:(serial):(\d+)(?::(\d+))?|(vnc):(\d+)|pat:(?:(tcp|udp):)?(\d+):(\d+))")
_PLACEHOLDER_TAG = re.compile(r"\$\{([A-Z][A-Z0-9_]{0,63})\}")
_MAX_PORT = 65_535
_MAX_TAG_LENGTH = 200


class ForwardedPort(LenientModel):
    """A port of the worker that CML forwards to a node."""

    name: str | None = Field(default=None, description="Its name in the definition; null if the number is fixed there.")
    port: int
    kind: PortKind
    inside: int | None = Field(default=None, description="The port of the node, or the line of its console.")
    address: str | None = Field(default=None, description="HOST:PORT; null while the host is not known.")
    command: str | None = Field(default=None, description="A command or address that connects; null if there is none.")


class NodeAccess(LenientModel):
    """How to reach one node."""

    node: str
    addresses: tuple[str, ...] = Field(default=(), description="Addresses that CML reports, within the lab's networks.")
    ports: tuple[ForwardedPort, ...] = ()


class LabletAccess(LenientModel):
    """How to reach a lablet. Hosts and addresses are given while its lab is on a worker that has an address."""

    lablet_id: str
    state: AccessState
    message: str
    worker_id: str | None = None
    worker_name: str | None = None
    host: str | None = None
    private: bool = Field(default=False, description="Whether the host is a private address, within the worker's VPC.")
    cml_url: str | None = None
    lab_url: str | None = Field(default=None, description="CML's own page of the lab.")
    nodes: tuple[NodeAccess, ...] = ()
    other_ports: dict[str, int] = Field(
        default_factory=dict, description="Reserved ports that no tag of a node forwards."
    )


def forwards_port(tag: str) -> bool:
    """Whether a tag of a node may forward a port to it."""
    return tag.startswith(("serial:", "vnc:", "pat:")) and len(tag) <= _MAX_TAG_LENGTH


def describe_access(lablet: Lablet, worker: Worker | None, tags: Iterable[tuple[str, Sequence[str]]]) -> LabletAccess:
    """How to reach a lablet; `tags` has the tags of each node of its topology, with placeholders."""
    state, message = _state(lablet, worker)
    name = None if worker is None else worker.name
    access = LabletAccess(
        lablet_id=lablet.id, state=state, message=message, worker_id=lablet.worker_id, worker_name=name
    )
    if state not in ("starting", "available") or worker is None:
        return access
    host = worker.public_ip or worker.private_ip
    assert host is not None, "the state says so"
    ports = {node: list(_forwarded(node_tags, lablet.ports, host)) for node, node_tags in tags}
    forwarded = {port.port for each in ports.values() for port in each}
    addresses = {each.node: each.addresses for each in lablet.endpoints}
    url = f"https://{_in_url(host)}"
    return access.model_copy(
        update={
            "host": host,
            "private": worker.public_ip is None,
            "cml_url": url,
            "lab_url": None if lablet.lab_id is None else f"{url}/lab/{quote(lablet.lab_id, safe='')}",
            "nodes": tuple(
                NodeAccess(node=node, addresses=addresses.get(node, ()), ports=tuple(ports.get(node, ())))
                for node in sorted({*addresses, *(node for node, found in ports.items() if found)})
            ),
            "other_ports": {key: port for key, port in sorted(lablet.ports.items()) if port not in forwarded},
        }
    )


def unreachable_reason(lablet: Lablet, worker: Worker | None) -> str:
    """Why a lab that runs by its record cannot be reached; empty if it can be, or if its worker is not known."""
    if lablet.status is not LabletStatus.RUNNING or worker is None:
        return ""
    state, message = _state(lablet, worker)
    return message if state == "unreachable" else ""


def _state(lablet: Lablet, worker: Worker | None) -> tuple[AccessState, str]:
    if lablet.status in FINAL_LABLET_STATUSES:
        return "released", "The lablet has ended. Its addresses and ports are released."
    if lablet.status is LabletStatus.STOPPING:
        return "released", "The lab is being deleted. Its addresses and ports are released."
    if lablet.worker_id is None:
        return "pending", "The address is known once the lablet is placed on a worker."
    if worker is None:
        return "unreachable", f"Its worker {lablet.worker_id} has no record. There is no address."
    if worker.status not in CML_STATUSES or not (worker.public_ip or worker.private_ip):
        what = _WITHOUT_ADDRESS.get(worker.status) if lablet.status is LabletStatus.RUNNING else None
        what, since = what or "There is no address now: the lab is on", format_instant(worker.status_since)
        return "unreachable", f"{what} {worker.name}, which has been {worker.status} since {since}."
    if lablet.status is not LabletStatus.RUNNING:
        return "starting", "The lab is being started. Ports answer once its nodes have booted."
    if lablet.instance_id is not None and lablet.instance_id != worker.instance_id:
        return "unreachable", f"{worker.name} has another instance now, without this lab."
    if not is_condition_true(worker.conditions, ConditionType.CML_READY):
        return "available", f"{worker.name} is not ready: CML on it may not answer."
    problem = lablet_problem(lablet)
    return "available", "The lab is running." if problem is None else f"The lab may not be running: {problem}."


_NOT_KNOWN = "Whether the lab is running is not known: it is on"
_WITHOUT_ADDRESS = {
    WorkerStatus.STOPPING: "The lab is being stopped with its worker",
    WorkerStatus.STOPPED: "The lab is stopped with its worker",
    WorkerStatus.TERMINATED: "The lab is gone with its worker",
    WorkerStatus.UNKNOWN: _NOT_KNOWN,
    WorkerStatus.FAILED: _NOT_KNOWN,
}
"""What is known of a running lab whose worker has one of these statuses."""


def _forwarded(tags: Iterable[str], ports: Mapping[str, int], host: str) -> Iterable[ForwardedPort]:
    for tag in tags:
        names = _PLACEHOLDER_TAG.findall(tag)
        match = _TAG.fullmatch(substitute_ports(tag, ports).replace(" ", ""))
        if match is None:
            continue
        serial, serial_port, line, vnc, vnc_port, protocol, pat_port, inside = match.groups()
        outside = int(serial_port or vnc_port or pat_port)
        if not 1 <= outside <= _MAX_PORT:
            continue
        kind: PortKind = "console" if serial else "vnc" if vnc else "udp" if protocol == "udp" else "tcp"
        target = int(line) if line else int(inside) if inside else None
        name = next((each for each in names if ports.get(each) == outside), None)
        yield ForwardedPort(
            name=name,
            port=outside,
            kind=kind,
            inside=target,
            address=f"{_in_url(host)}:{outside}",
            command=_command(kind, target, host, outside),
        )


def _command(kind: PortKind, inside: int | None, host: str, port: int) -> str | None:
    if kind == "console":
        return f"telnet {host} {port}"
    if kind == "vnc":
        return f"vncviewer {_in_url(host)}::{port}"
    if kind == "udp":
        return None
    by_service = {
        22: f"ssh -p {port} {host}",
        23: f"telnet {host} {port}",
        80: f"http://{_in_url(host)}:{port}",
        443: f"https://{_in_url(host)}:{port}",
    }
    return by_service.get(inside or 0)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
