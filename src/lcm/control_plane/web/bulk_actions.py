"""Actions on several records: a dialog shows what would happen to each, then each is changed on its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.http.query_params import split_values
from lcm.control_plane.web.forms import parse_version, query_ids, require_typed
from lcm.control_plane.web.rendering import DONE_EVENT, render_fragment, render_toast
from lcm.model.problems import ProblemCode
from lcm.model.worker.status import IllegalWorkerTransitionError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from fastapi import Request
    from fastapi.responses import HTMLResponse

    from lcm.control_plane.records.idempotency import IdempotencyKey
    from lcm.control_plane.web.workers.action_preview import ActionPreview
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

MAX_BULK_TARGETS: Final = 500
_MAX_PLANS_SHOWN = 20


def selected_ids(request: Request, noun: str) -> list[str]:
    """The IDs of the selected records, at least one."""
    ids = query_ids(request, MAX_BULK_TARGETS)
    if not ids:
        raise ProblemError(ProblemCode.INVALID, f"ids: select at least one {noun} and an action")
    return ids


def render_bulk_confirmation(
    previews: Sequence[tuple[Worker | Lablet, ActionPreview]],
    *,
    action_url: str,
    name: str,
    noun: str,
    lost: str = "",
    cost_changes: Sequence[float] = (),
) -> HTMLResponse:
    """The dialog: what would happen to each record, and which are skipped. A confirmation is sent to `action_url`.

    `lost` says what cannot be recovered; `cost_changes` are the changes of the hourly cost.
    """
    changing = [(record, preview) for record, preview in previews if preview.changes]
    return render_fragment(
        "shared/_confirm_bulk.html",
        action_url=action_url,
        name=name,
        noun=noun,
        plans=_group_by_effect(changing[:_MAX_PLANS_SHOWN]),
        more=max(0, len(changing) - _MAX_PLANS_SHOWN),
        count=len(changing),
        skipped=[(record, preview) for record, preview in previews if not preview.changes],
        targets=",".join(f"{record.id}:{record.version}" for record, _ in changing),
        lost=lost,
        saved=-sum(change for change in cost_changes if change < 0),
        added=sum(change for change in cost_changes if change > 0),
    )


def _group_by_effect(changing: Sequence[tuple[Worker | Lablet, ActionPreview]]) -> list[tuple[list[str], str, str]]:
    """Names, status and effect; records with the same status and effect share one line."""
    groups: dict[tuple[str, str], list[str]] = {}
    for record, preview in changing:
        groups.setdefault((record.status.replace("_", " "), preview.effect), []).append(record.name)
    return [(names, status, effect) for (status, effect), names in groups.items()]


async def apply_to_each(
    form: dict[str, list[str]],
    key: IdempotencyKey | None,
    result_text: str,
    change: Callable[[str, int | None, IdempotencyKey | None], Awaitable[object]],
) -> HTMLResponse:
    """Change each record on its own; a refusal does not affect the others. The user typed how many there are."""
    targets = split_values(form.get("targets", []))[:MAX_BULK_TARGETS]
    require_typed(form, str(len(targets)), "number of records")
    done, refused = 0, []
    for target in targets:
        record_id, _, version = target.partition(":")
        part_key = None if key is None else key.for_part(record_id)
        try:
            await change(record_id, parse_version(version), part_key)
            done += 1
        except (ProblemError, IllegalWorkerTransitionError) as error:
            refused.append(f"{record_id}: {getattr(error, 'detail', error)}")
    message = f"{result_text}: {done} of {done + len(refused)}"
    if refused:
        return render_toast(f"{message}. {'; '.join(refused[:3])}", kind="bad", triggers=DONE_EVENT)
    return render_toast(message, triggers=DONE_EVENT)
