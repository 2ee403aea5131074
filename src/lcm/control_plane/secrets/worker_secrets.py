"""A worker's secrets: the licence token and the CML credentials, encrypted, apart from the record."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lcm.control_plane.errors import Refusal
from lcm.control_plane.records.kinds import WORKER_SECRETS
from lcm.control_plane.secrets.box import Place, Secret, SecretBox
from lcm.control_plane.store.port import Put
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.control_plane.records.unit_of_work import Change
    from lcm.control_plane.store.port import Store

LICENSE_TOKEN = "license_token"  # noqa: S105 - the name of a field
CML_USERNAME = "cml_username"
CML_PASSWORD = "cml_password"  # noqa: S105 - the name of a field


async def keep_secrets(change: Change, box: SecretBox, worker_id: str, given: Mapping[str, str | None]) -> None:
    """Keep these, forget those that are None, leave the rest; in the same commit as the record."""
    if not given:
        return
    stored = await change.store.get(WORKER_SECRETS, worker_id)
    kept: dict[str, str] = {} if stored is None else json.loads(stored.body)
    for name, text in given.items():
        if text is None:
            kept.pop(name, None)
        else:
            kept[name] = box.encrypt(Secret(text), place_of(worker_id, name))
    body = json.dumps(kept, sort_keys=True).encode()
    change.write(Put(WORKER_SECRETS, worker_id, body, None if stored is None else stored.revision))


async def read_secret(store: Store, box: SecretBox, worker_id: str, name: str) -> Secret:
    """One secret in clear, for the controller alone."""
    stored = await store.get(WORKER_SECRETS, worker_id)
    kept: dict[str, str] = {} if stored is None else json.loads(stored.body)
    if name not in kept:
        raise Refusal(ProblemCode.NOT_FOUND, f"worker {worker_id} has no {name.replace('_', ' ')}")
    return box.decrypt(kept[name], place_of(worker_id, name))


def place_of(worker_id: str, name: str) -> Place:
    """Where a worker's secret belongs."""
    return Place(WORKER_SECRETS.name, worker_id, name)
