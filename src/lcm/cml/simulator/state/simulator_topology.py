"""Reading the YAML of a lab, as strictly as a server must."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

from lcm.cml.simulator.state.chance import new_mac, new_uuid
from lcm.cml.simulator.state.faults import Refusal
from lcm.cml.simulator.state.topology import DEFINITIONS

SCHEMAS = ("0.0.5", "0.1.0", "0.2.0", "0.2.1", "0.2.2", "0.3.0", "0.3.1")
LARGEST = 20 * 1024 * 1024
LONGEST_TITLE = 64


@dataclass
class Interface:
    """A network card of a node."""

    label: str
    kind: str
    slot: int | None
    id: str = field(default_factory=new_uuid)
    mac: str = field(default_factory=new_mac)


@dataclass
class NodePlan:
    """A node as the YAML describes it."""

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
    """A lab as the YAML describes it, with ids of the server's own."""

    title: str
    description: str
    notes: str
    nodes: list[NodePlan]
    links: list[LinkPlan]
    warnings: list[str]


def read_topology(text: str, schema: str, title: str | None) -> LabPlan:
    """The plan of a lab; refuses what cannot be one. `schema` is the newest version that the server knows."""
    if len(text) > LARGEST:
        raise Refusal(400, "The topology is too large")
    try:
        whole = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    except yaml.YAMLError as error:
        raise Refusal(400, f"Not YAML: {error}") from None
    lab = _mapping(_mapping(whole, "topology").get("lab"), "lab")
    version = lab.get("version")
    if version not in SCHEMAS or SCHEMAS.index(version) > SCHEMAS.index(schema):
        raise Refusal(400, f"Schema version {version} is not supported")
    nodes = {str(node.get("id")): _node(node) for node in _mappings(whole, "nodes")}
    links = [_link(link, nodes) for link in _mappings(whole, "links")]
    unknown = sorted({node.definition for node in nodes.values()} - set(DEFINITIONS))
    name = title or str(lab.get("title") or "Lab")
    if len(name) > LONGEST_TITLE:
        raise Refusal(400, f"The title is longer than {LONGEST_TITLE} characters")
    return LabPlan(
        title=name,
        description=str(lab.get("description") or ""),
        notes=str(lab.get("notes") or ""),
        nodes=list(nodes.values()),
        links=links,
        warnings=[f"Node definition {definition} is not known here" for definition in unknown],
    )


def _node(node: dict[str, Any]) -> NodePlan:
    label, definition = node.get("label"), node.get("node_definition")
    if not isinstance(label, str) or not isinstance(definition, str):
        raise Refusal(400, "Every node needs a label and a node_definition")
    interfaces = {
        str(entry.get("id")): Interface(
            label=str(entry.get("label") or f"eth{number}"),
            kind=str(entry.get("type") or "physical"),
            slot=entry.get("slot") if isinstance(entry.get("slot"), int) else None,
        )
        for number, entry in enumerate(_mappings(node, "interfaces"))
    }
    details = {key: node.get(key) for key in ("x", "y", "configuration", "image_definition", "tags", "ram", "cpus")}
    return NodePlan(label, definition, details, interfaces)


def _link(link: dict[str, Any], nodes: dict[str, NodePlan]) -> LinkPlan:
    ends: list[Interface] = []
    names: list[str] = []
    for node_key, interface_key in (("n1", "i1"), ("n2", "i2")):
        node = nodes.get(str(link.get(node_key)))
        interface = node.interfaces.get(str(link.get(interface_key))) if node else None
        if node is None or interface is None:
            raise Refusal(400, f"Link {link.get('id')} ends at a node or interface that does not exist")
        ends.append(interface)
        names.append(node.id)
    return LinkPlan((ends[0], ends[1]), (names[0], names[1]), str(link.get("label") or ""))


def _mapping(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refusal(400, f"The {name} must be a mapping")
    return value


def _mappings(value: dict[str, Any], name: str) -> list[dict[str, Any]]:
    entries = value.get(name) or []
    if not isinstance(entries, list):
        raise Refusal(400, f"{name} must be a list")
    return [_mapping(entry, f"entry of {name}") for entry in entries]
