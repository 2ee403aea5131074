"""What nodes can be made of, and how long and how much each takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Definition:
    """A kind of node."""

    id: str
    boot_seconds: float
    memory_mib: int
    cpus: int
    has_image: bool = True


DEFINITIONS: dict[str, Definition] = {
    definition.id: definition
    for definition in (
        Definition("external_connector", 0.2, 0, 0, has_image=False),
        Definition("unmanaged_switch", 0.2, 0, 0, has_image=False),
        Definition("alpine", 8.0, 512, 1),
        Definition("server", 10.0, 128, 1),
        Definition("ubuntu", 45.0, 2048, 1),
        Definition("iol-xe", 15.0, 1024, 1),
        Definition("iosv", 60.0, 768, 1),
        Definition("cat8000v", 150.0, 4096, 2),
    )
}
UNKNOWN = Definition("unknown", 30.0, 1024, 1)


def definition_of(name: str) -> Definition:
    """The definition of a name; one that nobody knows boots too, in a middling time."""
    return DEFINITIONS.get(name, UNKNOWN)


def node_definitions() -> list[dict[str, object]]:
    """The answer to `GET /node_definitions`."""
    return [
        {
            "id": definition.id,
            "general": {"description": f"Simulated {definition.id}", "nature": "router", "read_only": True},
            "sim": {"linux_native": {"ram": definition.memory_mib, "cpus": definition.cpus}},
        }
        for definition in DEFINITIONS.values()
    ]


def image_definitions() -> list[dict[str, object]]:
    """The answer to `GET /image_definitions`."""
    return [
        {
            "id": f"{definition.id}-1",
            "label": f"{definition.id} 1",
            "node_definition_id": definition.id,
            "read_only": True,
        }
        for definition in DEFINITIONS.values()
        if definition.has_image
    ]
