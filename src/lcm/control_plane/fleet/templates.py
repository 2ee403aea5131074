"""Worker templates: seeded at startup, changed by admins, read by controllers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog
import yaml
from pydantic import ValidationError

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.kinds import TEMPLATES
from lcm.control_plane.store.port import Put
from lcm.model.problems import ProblemCode
from lcm.model.validation import problems_of
from lcm.model.worker.template import DEFAULT_TEMPLATES, WorkerTemplate

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import Store

log = structlog.get_logger(__name__)


async def read_template(store: Store, name: str) -> WorkerTemplate:
    stored = await store.get(TEMPLATES, name)
    if stored is None:
        raise ProblemError(
            ProblemCode.NOT_FOUND, f"there is no template {name}; lcm templates list shows the existing ones"
        )
    return WorkerTemplate.model_validate_json(stored.body)


async def put_template(tx: Transaction, template: WorkerTemplate) -> bool:
    """Create or change a template; returns whether it is new. Fields of a newer version are kept."""
    stored = await tx.store.get(TEMPLATES, template.name)
    if stored is not None:
        before = WorkerTemplate.model_validate_json(stored.body)
        template = template.with_unknown_fields_of(before)
        if template == before:
            return False
    await tx.take_calendar()  # bookings are planned by the templates
    revision = None if stored is None else stored.revision
    body = template.model_dump_json().encode()
    tx.stage(Put(TEMPLATES, template.name, body, revision, {"enabled": template.enabled}))
    tx.audit("template_created" if stored is None else "template_changed", template.name)
    return stored is None


async def set_template_enabled(tx: Transaction, name: str, *, enabled: bool) -> WorkerTemplate:
    """Enable or disable a template. Existing workers are unaffected."""
    template = await read_template(tx.store, name)
    updated = template.model_copy(update={"enabled": enabled})
    await put_template(tx, updated)
    return updated


def load_templates(path: Path) -> list[WorkerTemplate]:
    """The templates of a YAML file: a list, or a mapping with `templates`. An invalid entry is logged and skipped."""
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        log.error("templates file cannot be read; no templates loaded", path=str(path), error=str(error))
        return []
    entries = content.get("templates") if isinstance(content, dict) else content
    if not isinstance(entries, list):
        log.error("templates file cannot be read: it must contain a list", path=str(path))
        return []
    return list(_valid_templates(path, entries))


def _valid_templates(path: Path, entries: list[Any]) -> Iterable[WorkerTemplate]:
    for number, entry in enumerate(entries, 1):
        try:
            yield WorkerTemplate.model_validate(entry)
        except ValidationError as error:
            where, text = next(problems_of(error))
            name = entry.get("name") if isinstance(entry, dict) else None
            log.error(
                "invalid template skipped", path=str(path), entry=number, name=name, field=".".join(where), error=text
            )


async def seed_templates(tx: Transaction, path: Path | None) -> int:
    """Upsert the templates of the file by name, or add missing defaults; returns the number of new templates."""
    if path is not None:
        loaded = load_templates(path)
        return len([template for template in loaded if await put_template(tx, template)])
    missing = [template for template in DEFAULT_TEMPLATES if await tx.store.get(TEMPLATES, template.name) is None]
    for template in missing:
        await put_template(tx, template)
    return len(missing)
