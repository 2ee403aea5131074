"""What a dry run shows besides the request: the control plane's own preview of the change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cli.errors import CommandError
from lcm.cli.runtime.options import validate

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.cli.runtime.session import Session
    from lcm.model.change_preview import ChangePreview, WorkerAction
    from lcm.model.worker.record import Worker
    from lcm.model.worker.requests import UpdateWorkerRequest

_PLACEHOLDER = "preview"


async def forecast_action(
    session: Session,
    worker: Worker,
    action: WorkerAction,
    *,
    release_license: bool = True,
    until: datetime | None = None,
) -> None:
    """Set the forecast of a command. One that would be rejected fails with the reason."""
    from lcm.model.change_preview import PreviewWorkerRequest

    body = PreviewWorkerRequest(action=action, release_license=release_license)
    if until is not None:
        body = validate(PreviewWorkerRequest, {"action": action, "until": until})
    session.forecast = forecast_lines(worker.name, await session.client.workers.preview(worker.id, body))


async def forecast_edit(session: Session, worker: Worker, changes: UpdateWorkerRequest) -> None:
    """Set the forecast of an edit. Secrets are not sent for a preview."""
    from pydantic import SecretStr

    from lcm.model.change_preview import PreviewWorkerRequest, WorkerAction

    secrets = {
        name: SecretStr(_PLACEHOLDER)
        for name in changes.model_fields_set
        if isinstance(getattr(changes, name), SecretStr)
    }
    body = PreviewWorkerRequest(action=WorkerAction.EDIT, changes=changes.model_copy(update=secrets))
    session.forecast = forecast_lines(worker.name, await session.client.workers.preview(worker.id, body))


def forecast_lines(name: str, preview: ChangePreview) -> list[tuple[str, str]]:
    """The preview as lines: what changes, what then happens, how long it takes, what it costs and what is lost."""
    if preview.refusal:
        raise CommandError(f"this would be rejected: {preview.refusal}")
    change = preview.change if preview.changes else f"{preview.change} (no change)".strip()
    lines = [
        (name, change),
        ("then", preview.effect),
        ("takes", preview.takes),
        ("cost", preview.cost),
        *((what.lower(), text) for what, text in preview.losses.items()),
    ]
    return [(label, text) for label, text in lines if text]
