"""Stores the simulated cloud on disk. Times are wall-clock times: transitions that fell due meanwhile have happened."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from lcm.cloud.simulated.machine import Machine
from lcm.cloud.simulated.region import ImageRecord, LaunchTokenRecord

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lcm.cloud.simulated.region import SimulatedRegion

FORMAT_VERSION: Final = 1


def check_format(stored: Mapping[str, Any]) -> None:
    """Reject a snapshot of another format version."""
    if stored.get("format") != FORMAT_VERSION:
        raise ValueError(
            f"unsupported format {stored.get('format')} of the simulated cloud; supported is {FORMAT_VERSION}"
        )


def region_to_json(region: SimulatedRegion) -> dict[str, Any]:
    """Return the stored form of a region."""
    return {
        "account_id": region.account_id,
        "subnets": region.subnets,
        "serials": region.serials,
        "machines": [machine.to_json() for machine in region.machines.values()],
        "images": [asdict(image) for image in region.images.values()],
        "tokens": [
            [token, zone, record.parameters, record.instance_id, record.forgotten_at]
            for (token, zone), record in region.tokens.items()
        ],
    }


def fill_region(region: SimulatedRegion, stored: Mapping[str, Any]) -> None:
    """Restore an empty region from `region_to_json`."""
    region.serials = stored["serials"]
    for machine in stored["machines"]:
        region.add(Machine.from_json(machine))
    for image in stored["images"]:
        region.images[image["id"]] = ImageRecord(**image)
    for token, zone, parameters, instance_id, forgotten_at in stored["tokens"]:
        region.tokens[token, zone] = LaunchTokenRecord(parameters, instance_id, forgotten_at)


def save(path: Path, stored: Mapping[str, Any]) -> None:
    """Replace the snapshot file atomically: there is always one complete snapshot."""
    draft = path.with_name(path.name + ".new")
    with draft.open("w", encoding="utf-8") as file:
        json.dump(stored, file, separators=(",", ":"))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def load(path: Path) -> dict[str, Any]:
    """What `save` wrote last."""
    with path.open(encoding="utf-8") as file:
        stored: dict[str, Any] = json.load(file)
    return stored
