"""Templates: seeded at start-up, changed by admins, asked for by controllers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog
import yaml
from pydantic import ValidationError

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.kinds import TEMPLATES
from lcm.control_plane.store.port import Put
from lcm.model.problems import ProblemCode
from lcm.model.worker.template import DEFAULT_TEMPLATES, WorkerTemplate

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import Store

log = structlog.get_logger(__name__)


async def read_template(store: Store, name: str) -> WorkerTemplate:
    """The template of this name."""
    stored = await store.get(TEMPLATES, name)
    if stored is None:
        raise ProblemError(
            ProblemCode.NOT_FOUND, f"there is no template {name}; lcm templates list shows those that are"
        )
    return WorkerTemplate.model_validate_json(stored.body)


async def put_template(change: Transaction, template: WorkerTemplate) -> bool:
    """Make or change a template; says whether it is new."""
    stored = await change.store.get(TEMPLATES, template.name)
    if stored is not None and WorkerTemplate.model_validate_json(stored.body) == template:
        return False
    revision = None if stored is None else stored.revision
    body = template.model_dump_json().encode()
    change.write(Put(TEMPLATES, template.name, body, revision, {"enabled": template.enabled}))
    change.audit("template_created" if stored is None else "template_changed", template.name)
    return stored is None


async def set_template_enabled(change: Transaction, name: str, *, enabled: bool) -> WorkerTemplate:
    """Enable or disable a template. Workers that were made from it stay as they are."""
    template = await read_template(change.store, name)
    switched = template.model_copy(update={"enabled": enabled})
    await put_template(change, switched)
    return switched


def load_templates(path: Path) -> list[WorkerTemplate]:
    """The templates of a YAML file: a list, or a mapping with `templates`. A bad entry is reported and passed over."""
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        log.error("templates cannot be read; none are taken from there", path=str(path), error=str(error))
        return []
    entries = content.get("templates") if isinstance(content, dict) else content
    if not isinstance(entries, list):
        log.error("templates cannot be read: the file must hold a list", path=str(path))
        return []
    return list(_valid_templates(path, entries))


def _valid_templates(path: Path, entries: list[Any]) -> Iterable[WorkerTemplate]:
    for number, entry in enumerate(entries, 1):
        try:
            yield WorkerTemplate.model_validate(entry)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            name = entry.get("name") if isinstance(entry, dict) else None
            log.error("template passed over", path=str(path), entry=number, name=name, field=where, error=first["msg"])


async def seed_templates(change: Transaction, path: Path | None) -> int:
    """Upsert the templates of the file by name, or the defaults that are missing; says how many were written."""
    if path is not None:
        wanted = load_templates(path)
        return len([template for template in wanted if await put_template(change, template)])
    missing = [template for template in DEFAULT_TEMPLATES if await change.store.get(TEMPLATES, template.name) is None]
    for template in missing:
        await put_template(change, template)
    return len(missing)
