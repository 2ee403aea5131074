"""Node definitions, and the topology of a lab: parsed from YAML as strictly as a server does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

from lcm.cml.simulator.state.clock import new_mac, new_uuid
from lcm.cml.simulator.state.faults import SimulatorApiError


@dataclass(frozen=True, slots=True)
class NodeDefinition:
    """A node definition: its boot time and resources."""

    id: str
    boot_seconds: float
    memory_mib: int
    cpus: int
    has_image: bool = True


NODE_DEFINITIONS: dict[str, NodeDefinition] = {
    definition.id: definition
    for definition in (
        NodeDefinition("external_connector", 0.2, 0, 0, has_image=False),
        NodeDefinition("unmanaged_switch", 0.2, 0, 0, has_image=False),
        NodeDefinition("alpine", 8.0, 512, 1),
        NodeDefinition("server", 10.0, 128, 1),
        NodeDefinition("ubuntu", 45.0, 2048, 1),
        NodeDefinition("iol-xe", 15.0, 1024, 1),
        NodeDefinition("iosv", 60.0, 768, 1),
        NodeDefinition("cat8000v", 150.0, 4096, 2),
    )
}
UNKNOWN_NODE_DEFINITION = NodeDefinition("unknown", 30.0, 1024, 1)


def find_node_definition(name: str) -> NodeDefinition:
    """The definition with this name. An unknown one also boots, in an average time."""
    return NODE_DEFINITIONS.get(name, UNKNOWN_NODE_DEFINITION)


def node_definitions_payload() -> list[dict[str, object]]:
    """The response to `GET /node_definitions`."""
    return [
        {
            "id": definition.id,
            "general": {"description": f"Simulated {definition.id}", "nature": "router", "read_only": True},
            "ui": {"label": definition.id, "label_prefix": f"{definition.id}-", "icon": "router", "visible": True},
            "device": {"interfaces": {"physical": ["eth0", "eth1"], "has_loopback_zero": False}},
            "sim": {"linux_native": {"ram": definition.memory_mib, "cpus": definition.cpus}},
        }
        for definition in NODE_DEFINITIONS.values()
    ]


def image_definitions_payload() -> list[dict[str, object]]:
    """The response to `GET /image_definitions`."""
    return [
        {
            "id": f"{definition.id}-1",
            "label": f"{definition.id} 1",
            "description": f"Simulated image of {definition.id}",
            "ram": None,
            "cpus": None,
            "boot_disk_size": None,
            "node_definition_id": definition.id,
            "read_only": True,
        }
        for definition in NODE_DEFINITIONS.values()
        if definition.has_image
    ]


SCHEMA_VERSIONS = ("0.0.5", "0.1.0", "0.2.0", "0.2.1", "0.2.2", "0.3.0", "0.3.1")
MAX_TOPOLOGY_LENGTH = 20 * 1024 * 1024
MAX_TITLE_LENGTH = 64


@dataclass
class Interface:
    """A network interface of a node."""

    label: str
    kind: str
    slot: int | None
    id: str = field(default_factory=new_uuid)
    mac: str = field(default_factory=new_mac)


@dataclass
class NodePlan:
    """A node as described by the YAML."""

    label: str
    definition: str
    details: dict[str, Any]
    interfaces: dict[str, Interface]
    id: str = field(default_factory=new_uuid)


@dataclass
class LinkPlan:
    """A link between two interfaces."""

    ends: tuple[Interface, Interface]
    nodes: tuple[str, str]
    label: str
    id: str = field(default_factory=new_uuid)


@dataclass
class LabPlan:
    """A lab as described by the YAML, with ids assigned by the server."""

    title: str
    description: str
    notes: str
    nodes: list[NodePlan]
    links: list[LinkPlan]
    warnings: list[str]


_YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_topology(text: str, schema: str, title: str | None) -> LabPlan:
    """Parse a lab; rejects invalid content. `schema` is the newest version that the server supports."""
    if len(text) > MAX_TOPOLOGY_LENGTH:
        raise SimulatorApiError(400, "The topology is too large")
    try:
        if any(getattr(event, "anchor", None) is not None for event in yaml.parse(text, Loader=_YAML_LOADER)):
            raise SimulatorApiError(400, "Anchors and aliases are not supported")
        whole = yaml.load(text, Loader=_YAML_LOADER)  # noqa: S506 - both loaders are safe
    except yaml.YAMLError as error:
        raise SimulatorApiError(400, f"Not YAML: {error}") from None
    lab = _require_mapping(_require_mapping(whole, "topology").get("lab"), "lab")
    version = lab.get("version")
    if version not in SCHEMA_VERSIONS or SCHEMA_VERSIONS.index(version) > SCHEMA_VERSIONS.index(schema):
        raise SimulatorApiError(400, f"Schema version {version} is not supported")
    nodes = {str(node.get("id")): _parse_node(node) for node in _mapping_list(whole, "nodes")}
    links = [_parse_link(link, nodes) for link in _mapping_list(whole, "links")]
    unknown = sorted({node.definition for node in nodes.values()} - set(NODE_DEFINITIONS))
    name = title or str(lab.get("title") or "Lab")
    if len(name) > MAX_TITLE_LENGTH:
        raise SimulatorApiError(400, f"The title is longer than {MAX_TITLE_LENGTH} characters")
    return LabPlan(
        title=name,
        description=str(lab.get("description") or ""),
        notes=str(lab.get("notes") or ""),
        nodes=list(nodes.values()),
        links=links,
        warnings=[f"Node definition {definition} is not known on this server" for definition in unknown],
    )


def _parse_node(node: dict[str, Any]) -> NodePlan:
    label, definition = node.get("label"), node.get("node_definition")
    if not isinstance(label, str) or not isinstance(definition, str):
        raise SimulatorApiError(400, "Every node needs a label and a node_definition")
    interfaces = {
        str(entry.get("id")): Interface(
            label=str(entry.get("label") or f"eth{number}"),
            kind=str(entry.get("type") or "physical"),
            slot=entry.get("slot") if isinstance(entry.get("slot"), int) else None,
        )
        for number, entry in enumerate(_mapping_list(node, "interfaces"))
    }
    details = {key: node.get(key) for key in ("x", "y", "configuration", "image_definition", "tags", "ram", "cpus")}
    return NodePlan(label, definition, details, interfaces)


def _parse_link(link: dict[str, Any], nodes: dict[str, NodePlan]) -> LinkPlan:
    ends: list[Interface] = []
    names: list[str] = []
    for node_key, interface_key in (("n1", "i1"), ("n2", "i2")):
        node = nodes.get(str(link.get(node_key)))
        interface = node.interfaces.get(str(link.get(interface_key))) if node else None
        if node is None or interface is None:
            raise SimulatorApiError(400, f"Link {link.get('id')} refers to a node or interface that does not exist")
        ends.append(interface)
        names.append(node.id)
    return LinkPlan((ends[0], ends[1]), (names[0], names[1]), str(link.get("label") or ""))


def _require_mapping(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SimulatorApiError(400, f"The {name} must be a mapping")
    return value


def _mapping_list(value: dict[str, Any], name: str) -> list[dict[str, Any]]:
    entries = value.get(name) or []
    if not isinstance(entries, list):
        raise SimulatorApiError(400, f"{name} must be a list")
    return [_require_mapping(entry, f"entry of {name}") for entry in entries]
