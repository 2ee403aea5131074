"""Actions on several records: a dialog shows what would happen to each, then each is changed on its own."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from starlette.datastructures import QueryParams

from lcm.control_plane.errors import PreconditionFailedError, ProblemError
from lcm.control_plane.http.query_params import split_values
from lcm.control_plane.web.forms import parse_version, query_ids, require_typed
from lcm.control_plane.web.rendering import DONE_EVENT, render_fragment, render_toast
from lcm.model.problems import ProblemCode
from lcm.model.worker.record import Worker
from lcm.model.worker.status import IllegalWorkerTransitionError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from fastapi import Request
    from fastapi.responses import HTMLResponse

    from lcm.control_plane.records.idempotency import IdempotencyKey
    from lcm.control_plane.store.port import FieldValue, Kind, Store, StoredDocument, Where
    from lcm.control_plane.web.list_query import ListQuery
    from lcm.model.change_preview import ChangePreview
    from lcm.model.lablet.record import Lablet

MAX_BULK_TARGETS: Final = 10_000
_MAX_PLANS_SHOWN = 20
_PAGE = 100
_AT_ONCE = 50


async def selected_documents(
    request: Request,
    store: Store,
    kind: Kind,
    query_class: type[ListQuery],
    noun: str,
    either: Mapping[str, Sequence[FieldValue]] | None = None,
) -> Sequence[StoredDocument]:
    """The selected records: all that match the query of the list, or those that were ticked; at least one.

    `either` is what the user may see of the list.
    """
    if "matching" in request.query_params:
        query = query_class.from_query(QueryParams(request.query_params["matching"]))
        return await _matching_documents(store, kind, query, replace(query.where(), either=either or {}), noun)
    ids = query_ids(request, MAX_BULK_TARGETS)
    if not ids:
        raise ProblemError(ProblemCode.INVALID, f"ids: select at least one {noun} and an action")
    found = await store.get_many(kind, ids)
    return [found[each] for each in ids if each in found]


async def _matching_documents(
    store: Store, kind: Kind, query: ListQuery, where: Where, noun: str
) -> Sequence[StoredDocument]:
    found: list[StoredDocument] = []
    after: str | None = None
    while True:
        page = await store.find(kind, where, sort=query.sort_order(), after=after, limit=_PAGE)
        found += page.items
        after = page.next_cursor
        if len(found) > MAX_BULK_TARGETS:
            detail = f"more than {MAX_BULK_TARGETS:,} {noun}s match; narrow the search and act on fewer at once"
            raise ProblemError(ProblemCode.INVALID, f"matching: {detail}")
        if after is None:
            return found


def render_bulk_confirmation(
    previews: Sequence[tuple[Worker | Lablet, ChangePreview]],
    *,
    action_url: str,
    name: str,
    noun: str,
    lost: str = "",
    cost_changes: Sequence[float] = (),
    licensed: int = 0,
) -> HTMLResponse:
    """The dialog: what would happen to each record, and which are skipped. A confirmation is sent to `action_url`.

    `lost` says what cannot be recovered; `cost_changes` are the changes of the hourly cost. `licensed` records have
    a license that would be deregistered first, which can be skipped.
    """
    changing = [(record, preview) for record, preview in previews if preview.changes]
    skipped = [(record, preview) for record, preview in previews if not preview.changes]
    return render_fragment(
        "shared/_confirm_bulk.html",
        action_url=action_url,
        name=name,
        noun=noun,
        plans=_group_by_effect(changing[:_MAX_PLANS_SHOWN]),
        more=max(0, len(changing) - _MAX_PLANS_SHOWN),
        count=len(changing),
        skipped=[
            (record.name, _status_text(record), preview.refusal or preview.effect)
            for record, preview in skipped[:_MAX_PLANS_SHOWN]
        ],
        more_skipped=max(0, len(skipped) - _MAX_PLANS_SHOWN),
        targets=",".join(f"{record.id}:{record.version}" for record, _ in changing),
        lost=lost,
        saved=-sum(change for change in cost_changes if change < 0),
        added=sum(change for change in cost_changes if change > 0),
        licensed=licensed,
    )


def _group_by_effect(changing: Sequence[tuple[Worker | Lablet, ChangePreview]]) -> list[tuple[list[str], str, str]]:
    """Names, status and effect; records with the same status and effect share one line."""
    groups: dict[tuple[str, str], list[str]] = {}
    for record, preview in changing:
        groups.setdefault((_status_text(record), preview.effect), []).append(record.name)
    return [(names, status, effect) for (status, effect), names in groups.items()]


def _status_text(record: Worker | Lablet) -> str:
    """The status as lists show it."""
    never_launched = isinstance(record, Worker) and record.is_not_launched
    return "NOT LAUNCHED" if never_launched else record.status.replace("_", " ")


async def apply_to_each(
    form: dict[str, list[str]],
    key: IdempotencyKey | None,
    result_text: str,
    change: Callable[[str, int | None, IdempotencyKey | None], Awaitable[object]],
) -> HTMLResponse:
    """Change each record on its own; a refusal does not affect the others. The user typed how many there are."""
    targets = split_values(form.get("targets", []))[:MAX_BULK_TARGETS]
    require_typed(form, str(len(targets)), "number of records")
    changed_meanwhile: list[str] = []
    refused: list[str] = []

    async def change_one(target: str) -> None:
        record_id, _, version = target.partition(":")
        part_key = None if key is None else key.for_part(record_id)
        try:
            await change(record_id, parse_version(version), part_key)
        except PreconditionFailedError:
            changed_meanwhile.append(record_id)
        except (ProblemError, IllegalWorkerTransitionError) as error:
            refused.append(f"{record_id}: {getattr(error, 'detail', error)}")

    for begin in range(0, len(targets), _AT_ONCE):  # commits that wait together are made durable together
        await asyncio.gather(*(change_one(target) for target in targets[begin : begin + _AT_ONCE]))
    done = len(targets) - len(changed_meanwhile) - len(refused)
    message = f"{result_text[0].upper()}{result_text[1:]}: {done:,} of {len(targets):,}"
    problems = refused[:3]
    if changed_meanwhile:
        others = f" and {len(changed_meanwhile) - 3} more" if len(changed_meanwhile) > 3 else ""
        named = ", ".join(changed_meanwhile[:3]) + others
        problems.insert(0, f"Skipped because its version changed since the dialog was opened: {named}")
    if problems:
        return render_toast(f"{message}. {'; '.join(problems)}", kind="bad", triggers=DONE_EVENT)
    return render_toast(message, triggers=DONE_EVENT)
