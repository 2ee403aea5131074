"""The client of the labs on a CML server. Only the lablet controller may import it.

A lab of ours carries a marker at the end of its title, given in the same call that makes it. So a lab whose answer was
lost, or whose maker died, is found again, and there is no moment at which a lab of ours is without it.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lcm.cml.client.json_values import (
    MalformedResponseError,
    as_list,
    as_object,
    get_text,
    optional_int,
    optional_text,
    parse_time,
)
from lcm.cml.client.transport import IMPORT_TIMEOUT
from lcm.cml.errors import CMLNotFoundError
from lcm.cml.types import ElementStates, ImportedLab, LabState, NodeAddress, NodeState

if TYPE_CHECKING:
    from lcm.cml.client.responses import CMLResponse
    from lcm.cml.client.session import CMLSession
    from lcm.cml.types import Credentials

MAX_TITLE_LENGTH = 64  # no facts on what CML allows: short enough to be safe
MAX_CONCURRENT_READS = 8

_MARKER_PATTERN = re.compile(r"\[lcm:([A-Za-z0-9._-]+)\]$")
_VALID_MARKER = re.compile(r"[A-Za-z0-9._-]{1,48}")


def title_with_marker(title: str, marker: str) -> str:
    """A title that ends in the marker; the person's part gives way when both do not fit."""
    if not _VALID_MARKER.fullmatch(marker):
        raise ValueError(f"marker {marker!r}: at most 48 letters, digits, dots, dashes and underscores")
    tail = f" [lcm:{marker}]"
    return (title[: MAX_TITLE_LENGTH - len(tail)].rstrip() + tail).strip()


def marker_in_title(title: str) -> str | None:
    """The marker in a title, None for a lab of somebody else."""
    found = _MARKER_PATTERN.search(title)
    return found.group(1) if found else None


class CMLLabsClient:
    """Labs of one server at a time. Changes return when the server took them; their effect shows in the states."""

    def __init__(self, session: CMLSession) -> None:
        self._session = session

    async def list_labs(self, address: str, credentials: Credentials) -> list[LabState]:
        """All labs of all users. One that vanishes meanwhile is left out."""
        ids = await self._session.call(
            "list_labs", address, credentials, "GET", "/labs", query={"show_all": "true"}, read=_parse_lab_ids
        )
        gate = asyncio.Semaphore(MAX_CONCURRENT_READS)

        async def look(lab_id: str) -> LabState | None:
            async with gate:
                try:
                    return await self.get_lab(address, credentials, lab_id)
                except CMLNotFoundError:
                    return None

        try:
            async with asyncio.TaskGroup() as group:
                looks = [group.create_task(look(lab_id)) for lab_id in ids]
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        return [lab for lab in (task.result() for task in looks) if lab is not None]

    async def find_labs(self, address: str, credentials: Credentials, marker: str) -> list[LabState]:
        """The labs with this marker. More than one if somebody copied ours with its title."""
        return [lab for lab in await self.list_labs(address, credentials) if lab.marker == marker]

    async def get_lab(self, address: str, credentials: Credentials, lab_id: str) -> LabState:
        """One lab."""
        return await self._session.call(
            "get_lab", address, credentials, "GET", _lab_path(lab_id), read=lambda reply: _parse_lab(reply.content)
        )

    async def import_lab(
        self, address: str, credentials: Credentials, topology: str, *, title: str, marker: str
    ) -> ImportedLab:
        """Make a lab of a topology (YAML). After `OutcomeUnknown` look for the marker before trying again."""
        return await self._session.call(
            "import_lab",
            address,
            credentials,
            "POST",
            "/import",
            query={"title": title_with_marker(title, marker)},
            text=topology,
            seconds=IMPORT_TIMEOUT,
            read=lambda reply: _parse_imported_lab(reply.content),
        )

    async def start_lab(self, address: str, credentials: Credentials, lab_id: str) -> None:
        """Begin to start all nodes."""
        await self._change("start_lab", address, credentials, "PUT", _lab_path(lab_id, "/start"))

    async def stop_lab(self, address: str, credentials: Credentials, lab_id: str) -> None:
        """Begin to stop all nodes."""
        await self._change("stop_lab", address, credentials, "PUT", _lab_path(lab_id, "/stop"))

    async def wipe_lab(self, address: str, credentials: Credentials, lab_id: str) -> None:
        """Begin to wipe the disks of all nodes, which must be stopped."""
        await self._change("wipe_lab", address, credentials, "PUT", _lab_path(lab_id, "/wipe"))

    async def delete_lab(self, address: str, credentials: Credentials, lab_id: str) -> bool:
        """Remove a lab that is stopped and wiped; False when it was gone already."""
        try:
            await self._change("delete_lab", address, credentials, "DELETE", _lab_path(lab_id))
        except CMLNotFoundError:
            return False
        return True

    async def has_converged(self, address: str, credentials: Credentials, lab_id: str) -> bool:
        """Whether no node is on its way to another state any more."""
        return await self._session.call(
            "lab_converged", address, credentials, "GET", _lab_path(lab_id, "/check_if_converged"), read=_parse_bool
        )

    async def element_states(self, address: str, credentials: Credentials, lab_id: str) -> ElementStates:
        """The states of all nodes, links and interfaces."""
        return await self._session.call(
            "element_states",
            address,
            credentials,
            "GET",
            _lab_path(lab_id, "/lab_element_state"),
            read=lambda reply: _parse_element_states(reply.content),
        )

    async def nodes(self, address: str, credentials: Credentials, lab_id: str) -> list[NodeState]:
        """The nodes with their names and states."""
        return await self._session.call(
            "lab_nodes",
            address,
            credentials,
            "GET",
            _lab_path(lab_id, "/nodes"),
            query={"data": "true", "operational": "true", "exclude_configurations": "true"},
            read=lambda reply: [_parse_node(entry) for entry in as_list(reply.content, "the list of nodes")],
        )

    async def node_addresses(self, address: str, credentials: Credentials, lab_id: str) -> list[NodeAddress]:
        """The addresses that the server has seen the nodes use; they come some time after booting."""
        return await self._session.call(
            "node_addresses",
            address,
            credentials,
            "GET",
            _lab_path(lab_id, "/layer3_addresses"),
            read=lambda reply: _parse_addresses(reply.content),
        )

    async def _change(self, operation: str, address: str, credentials: Credentials, method: str, path: str) -> None:
        await self._session.call(operation, address, credentials, method, path, read=lambda _reply: None)


def _lab_path(lab_id: str, rest: str = "") -> str:
    return f"/labs/{quote(lab_id, safe='')}{rest}"


def _parse_lab_ids(reply: CMLResponse) -> list[str]:
    found = as_list(reply.content, "the list of labs")
    if not all(isinstance(entry, str) for entry in found):
        raise MalformedResponseError("the list of labs holds something that is no id")
    return found


def _parse_lab(content: Any) -> LabState:
    lab = as_object(content, "the lab")
    title = get_text(lab, "lab_title", "")
    return LabState(
        id=get_text(lab, "id"),
        title=title,
        state=get_text(lab, "state"),
        marker=marker_in_title(title),
        owner_id=optional_text(lab, "owner"),
        node_count=optional_int(lab, "node_count"),
        created=parse_time(lab.get("created")),
    )


def _parse_imported_lab(content: Any) -> ImportedLab:
    answer = as_object(content, "the answer to the import")
    return ImportedLab(
        get_text(answer, "id"), tuple(str(entry) for entry in as_list(answer.get("warnings") or [], "warnings"))
    )


def _parse_bool(reply: CMLResponse) -> bool:
    if not isinstance(reply.content, bool):
        raise MalformedResponseError("the answer is neither true nor false")
    return reply.content


def _parse_element_states(content: Any) -> ElementStates:
    answer = as_object(content, "the element states")
    return ElementStates(*(_parse_states(answer, kind) for kind in ("nodes", "links", "interfaces")))


def _parse_states(answer: dict[str, Any], kind: str) -> dict[str, str]:
    states = as_object(answer.get(kind), kind)
    return {name: get_text(states, name) for name in states}


def _parse_node(entry: Any) -> NodeState:
    node = as_object(entry, "a node")
    return NodeState(
        id=get_text(node, "id"),
        label=get_text(node, "label", ""),
        definition=get_text(node, "node_definition", ""),
        state=get_text(node, "state"),
    )


def _parse_addresses(content: Any) -> list[NodeAddress]:
    found: list[NodeAddress] = []
    for node_id, entry in as_object(content, "the addresses").items():
        interfaces = as_object(as_object(entry, "a node").get("interfaces") or {}, "interfaces")
        for mac, details in interfaces.items():
            interface = as_object(details, "an interface")
            found.append(
                NodeAddress(
                    node_id=node_id,
                    interface=get_text(interface, "label", ""),
                    mac=mac,
                    ipv4=_string_values(interface, "ip4"),
                    ipv6=_string_values(interface, "ip6"),
                )
            )
    return found


def _string_values(value: dict[str, Any], key: str) -> tuple[str, ...]:
    return tuple(entry for entry in as_list(value.get(key) or [], key) if isinstance(entry, str))
