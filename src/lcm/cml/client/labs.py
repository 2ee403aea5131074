"""The labs client of a CML server. Only the lablet controller may import it.

A lab that LCM creates has a marker at the end of its title, set by the call that creates it. So a lab whose response
was lost, or whose creator died, can be found again, and no lab of ours ever exists without its marker.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lcm.cml.client.responses import (
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

MAX_TITLE_LENGTH = 64  # CML's limit is not documented: this is short enough to be safe
MAX_CONCURRENT_READS = 8

_MARKER_PATTERN = re.compile(r"\[lcm:([A-Za-z0-9._-]+)\]$")
_VALID_MARKER = re.compile(r"[A-Za-z0-9._-]{1,48}")


def title_with_marker(title: str, marker: str) -> str:
    """A title that ends with the marker; the given title is shortened if both do not fit."""
    if not _VALID_MARKER.fullmatch(marker):
        raise ValueError(f"marker {marker!r}: at most 48 letters, digits, dots, dashes and underscores")
    tail = f" [lcm:{marker}]"
    return (title[: MAX_TITLE_LENGTH - len(tail)].rstrip() + tail).strip()


def marker_in_title(title: str) -> str | None:
    """The marker in a title, or None for a lab that LCM did not create."""
    found = _MARKER_PATTERN.search(title)
    return found.group(1) if found else None


class CMLLabsClient:
    """The labs of one server per call. A change returns once it is accepted; its effect shows in the states."""

    def __init__(self, session: CMLSession) -> None:
        self._session = session

    async def list_labs(self, address: str, credentials: Credentials) -> list[LabState]:
        """All labs of all users. A lab that is deleted during the call is left out."""
        ids = await self._session.call(
            "list_labs", address, credentials, "GET", "/labs", query={"show_all": "true"}, read=_parse_lab_ids
        )
        semaphore = asyncio.Semaphore(MAX_CONCURRENT_READS)

        async def read(lab_id: str) -> LabState | None:
            async with semaphore:
                try:
                    return await self.get_lab(address, credentials, lab_id)
                except CMLNotFoundError:
                    return None

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(read(lab_id)) for lab_id in ids]
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        return [lab for lab in (task.result() for task in tasks) if lab is not None]

    async def get_lab(self, address: str, credentials: Credentials, lab_id: str) -> LabState:
        """One lab."""
        return await self._session.call(
            "get_lab",
            address,
            credentials,
            "GET",
            _lab_path(lab_id),
            read=lambda response: _parse_lab(response.content),
        )

    async def import_lab(
        self, address: str, credentials: Credentials, topology: str, *, title: str, marker: str
    ) -> ImportedLab:
        """Create a lab from a topology (YAML). After `CMLOutcomeUnknownError` search for the marker before retrying."""
        return await self._session.call(
            "import_lab",
            address,
            credentials,
            "POST",
            "/import",
            query={"title": title_with_marker(title, marker)},
            text=topology,
            timeout=IMPORT_TIMEOUT,
            read=lambda response: _parse_imported_lab(response.content),
        )

    async def start_lab(self, address: str, credentials: Credentials, lab_id: str) -> None:
        """Start all nodes. Returns before they are started."""
        await self._change("start_lab", address, credentials, "PUT", _lab_path(lab_id, "/start"))

    async def stop_lab(self, address: str, credentials: Credentials, lab_id: str) -> None:
        """Stop all nodes. Returns before they are stopped."""
        await self._change("stop_lab", address, credentials, "PUT", _lab_path(lab_id, "/stop"))

    async def wipe_lab(self, address: str, credentials: Credentials, lab_id: str) -> None:
        """Wipe the disks of all nodes, which must be stopped. Returns before they are wiped."""
        await self._change("wipe_lab", address, credentials, "PUT", _lab_path(lab_id, "/wipe"))

    async def delete_lab(self, address: str, credentials: Credentials, lab_id: str) -> bool:
        """Delete a lab that is stopped and wiped; False if it was already gone."""
        try:
            await self._change("delete_lab", address, credentials, "DELETE", _lab_path(lab_id))
        except CMLNotFoundError:
            return False
        return True

    async def has_converged(self, address: str, credentials: Credentials, lab_id: str) -> bool:
        """Whether no node is changing its state."""
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
            read=lambda response: _parse_element_states(response.content),
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
            read=lambda response: [_parse_node(entry) for entry in as_list(response.content, "the list of nodes")],
        )

    async def node_addresses(self, address: str, credentials: Credentials, lab_id: str) -> list[NodeAddress]:
        """The addresses that the server has observed on the nodes; they appear some time after booting."""
        return await self._session.call(
            "node_addresses",
            address,
            credentials,
            "GET",
            _lab_path(lab_id, "/layer3_addresses"),
            read=lambda response: _parse_addresses(response.content),
        )

    async def _change(self, operation: str, address: str, credentials: Credentials, method: str, path: str) -> None:
        await self._session.call(operation, address, credentials, method, path, read=lambda _response: None)


def _lab_path(lab_id: str, rest: str = "") -> str:
    return f"/labs/{quote(lab_id, safe='')}{rest}"


def _parse_lab_ids(response: CMLResponse) -> list[str]:
    found = as_list(response.content, "the list of labs")
    if not all(isinstance(entry, str) for entry in found):
        raise MalformedResponseError("the list of labs contains an entry that is not an id")
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
    payload = as_object(content, "the response to the import")
    return ImportedLab(
        get_text(payload, "id"), tuple(str(entry) for entry in as_list(payload.get("warnings") or [], "warnings"))
    )


def _parse_bool(response: CMLResponse) -> bool:
    if not isinstance(response.content, bool):
        raise MalformedResponseError("the response is neither true nor false")
    return response.content


def _parse_element_states(content: Any) -> ElementStates:
    payload = as_object(content, "the element states")
    return ElementStates(*(_parse_states(payload, kind) for kind in ("nodes", "links", "interfaces")))


def _parse_states(payload: dict[str, Any], kind: str) -> dict[str, str]:
    states = as_object(payload.get(kind), kind)
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
