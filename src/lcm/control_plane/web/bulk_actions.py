"""Changes of several records at once: what becomes of each is shown first, then each is changed on its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.http.api.workers import split_values
from lcm.control_plane.web.auth import query_ids
from lcm.control_plane.web.rendering import DONE_EVENT, render_fragment, render_toast
from lcm.model.problems import ProblemCode
from lcm.model.worker.status import IllegalWorkerTransitionError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from fastapi import Request
    from fastapi.responses import HTMLResponse

    from lcm.control_plane.web.workers.action_preview import ActionPreview
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

MAX_BULK_TARGETS: Final = 500
_MAX_PLANS_SHOWN = 20


def selected_ids(request: Request, noun: str) -> list[str]:
    """The records that somebody chose, which are some."""
    ids = query_ids(request, MAX_BULK_TARGETS)
    if not ids:
        raise ProblemError(ProblemCode.INVALID, f"ids: choose at least one {noun}, and what to do")
    return ids


def render_bulk_confirmation(
    foreseen: Sequence[tuple[Worker | Lablet, ActionPreview]],
    *,
    place: str,
    name: str,
    noun: str,
    lost: str = "",
    price: float = 0,
    added: float = 0,
) -> HTMLResponse:
    """What would happen to each, and which are left alone. `place` is where a yes is sent to.

    `lost` is what nobody gets back, `price` and `added` are what all of it saves and costs an hour.
    """
    doing = [(record, found) for record, found in foreseen if found.changes]
    return render_fragment(
        "shared/_confirm_bulk.html",
        place=place,
        name=name,
        noun=noun,
        plans=_group_by_effect(doing[:_MAX_PLANS_SHOWN]),
        more=max(0, len(doing) - _MAX_PLANS_SHOWN),
        count=len(doing),
        left=[(record, found) for record, found in foreseen if not found.changes],
        targets=",".join(f"{record.id}:{record.version}" for record, _ in doing),
        lost=lost,
        price=price,
        added=added,
    )


def _group_by_effect(doing: Sequence[tuple[Worker | Lablet, ActionPreview]]) -> list[tuple[list[str], str, str]]:
    """Names, status and what happens: those to whom the same happens are told of together."""
    together: dict[tuple[str, str], list[str]] = {}
    for record, found in doing:
        together.setdefault((record.status.replace("_", " "), found.happens), []).append(record.name)
    return [(names, status, happens) for (status, happens), names in together.items()]


async def apply_to_each(
    form: dict[str, list[str]], said: str, change: Callable[[str, int | None], Awaitable[object]]
) -> HTMLResponse:
    """Change each on its own: one that refuses does not keep the others."""
    done, refused = 0, []
    for target in split_values(form.get("targets", []))[:MAX_BULK_TARGETS]:
        record_id, _, version = target.partition(":")
        try:
            await change(record_id, int(version) if version.isdecimal() else None)
            done += 1
        except (ProblemError, IllegalWorkerTransitionError) as error:
            refused.append(f"{record_id}: {getattr(error, 'detail', error)}")
    words = f"{said}: {done} of {done + len(refused)}"
    if refused:
        return render_toast(f"{words}. {'; '.join(refused[:3])}", kind="bad", triggers=DONE_EVENT)
    return render_toast(words, triggers=DONE_EVENT)
