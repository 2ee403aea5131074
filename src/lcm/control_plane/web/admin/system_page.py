"""System: whether the manager itself is well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.services import get_services
from lcm.control_plane.web.auth import CurrentUser, is_fragment
from lcm.control_plane.web.rendering import render_fragment, render_page
from lcm.model.formatting import as_clause
from lcm.model.system import ControllerVerdict

if TYPE_CHECKING:
    from lcm.model.system import ControllerHealth, ControllerReport, RegionReport, SystemHealth

router = APIRouter(include_in_schema=False)
CALL_TARGETS = {"aws": "AWS", "cml": "CML servers", "control-plane": "the control plane"}
MAX_OPERATIONS = 8
_SUCCESS_OUTCOMES = ("ok", "made")


@router.get("/system")
async def system_page(request: Request, who: CurrentUser) -> HTMLResponse:
    """The page, or only its content for a script that asks again."""
    health = await get_services(request).system.health()
    values: dict[str, Any] = {
        "health": health,
        "said": health_summary(health),
        "open_breakers": open_breakers(health),
        "called": frequent_calls,
        "calls_to": count_calls,
        "called_names": CALL_TARGETS,
    }
    if is_fragment(request):
        return render_fragment("admin/_system.html", **values)
    return await render_page(request, who, "admin/system.html", here="system", title="System", **values)


def health_summary(health: SystemHealth) -> tuple[str, str]:
    """The answer to "is it well?": good, warn or bad, and why."""
    unwell = [each for each in health.controllers if each.verdict is not ControllerVerdict.HEALTHY]
    mirror = health.plane.mirror
    if not health.controllers:
        return "bad", "No controller has ever announced itself: nothing is done to workers."
    if unwell:
        return "bad", f"{unwell[0].name} is not well: {unwell[0].said}."
    if mirror is not None and mirror.trouble:
        return "bad", f"Controllers do not hear of changes: {mirror.trouble}."
    if health.hold is not None:
        return "warn", "Everything works, and nothing is done: the fleet is on hold."
    if suspended := open_breakers(health):
        return "warn", f"A breaker is open: in {_join_names(suspended)} no worker is marked as lost."
    regions = [each for controller in health.controllers for each in _regions(controller)]
    if unseen := [each for each in regions if each.trouble]:
        return "warn", f"{unseen[0].name} cannot be looked at: {as_clause(unseen[0].trouble)}."
    if beginning := [each.name for each in health.controllers if each.term and not each.startup_sweep_done]:
        return "warn", f"{_join_names(beginning)} has just begun to lead and has not verified everything yet."
    if health.leaks_total:
        return "warn", f"Everything works; {health.leaks_total} of our instances belong to no worker."
    return "good", "Everything works."


def open_breakers(health: SystemHealth) -> list[str]:
    """Regions whose breaker is open: those that the fleet knows of, and those that only the leader has told of yet."""
    told = (each.name for controller in health.controllers for each in _regions(controller) if each.breaker_open)
    return sorted({*(breaker.region for breaker in health.breakers), *told})


def _regions(controller: ControllerHealth) -> tuple[RegionReport, ...]:
    return () if controller.report is None else controller.report.regions


def _join_names(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def count_calls(report: ControllerReport, whom: str) -> int:
    """How often somebody was called."""
    return sum(count for outcomes in report.calls.get(whom, {}).values() for count in outcomes.values())


def frequent_calls(report: ControllerReport, whom: str) -> list[tuple[str, int, str]]:
    """The most frequent calls to somebody: operation, how often, and how those ended that did not end well.

    Of the others those are shown that did not always end well.
    """
    rows = []
    for operation, outcomes in report.calls.get(whom, {}).items():
        other = sorted((outcome, count) for outcome, count in outcomes.items() if outcome not in _SUCCESS_OUTCOMES)
        words = ", ".join(f"{count} {outcome.replace('_', ' ')}" for outcome, count in other)
        rows.append((operation, sum(outcomes.values()), words))
    rows.sort(key=lambda row: (-row[1], row[0]))
    return [row for number, row in enumerate(rows) if number < MAX_OPERATIONS or row[2]]
