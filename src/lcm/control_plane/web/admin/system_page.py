"""System: whether the manager itself is well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.services import parts
from lcm.control_plane.web.auth import Visitor, is_fragment
from lcm.control_plane.web.rendering import fragment, page
from lcm.model.formatting import quoted
from lcm.model.system import Verdict

if TYPE_CHECKING:
    from lcm.model.model_system import ControllerHealth, SystemHealth
    from lcm.model.system import ControllerReport, RegionReport

router = APIRouter(include_in_schema=False)
CALLED = {"aws": "AWS", "cml": "CML servers", "control-plane": "the control plane"}
MOST_OPERATIONS = 8
_FINE = ("ok", "made")


@router.get("/system")
async def system(request: Request, who: Visitor) -> HTMLResponse:
    """The page, or only its content for a script that asks again."""
    health = await parts(request).system.health()
    values: dict[str, Any] = {
        "health": health,
        "said": in_a_sentence(health),
        "open_breakers": open_breakers(health),
        "called": called,
        "calls_to": calls_to,
        "called_names": CALLED,
    }
    if is_fragment(request):
        return fragment("admin/_system.html", **values)
    return await page(request, who, "admin/system.html", here="system", title="System", **values)


def in_a_sentence(health: SystemHealth) -> tuple[str, str]:
    """The answer to "is it well?": good, warn or bad, and why."""
    unwell = [each for each in health.controllers if each.verdict is not Verdict.HEALTHY]
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
        return "warn", f"A breaker is open: in {_named(suspended)} no worker is marked as lost."
    regions = [each for controller in health.controllers for each in _regions(controller)]
    if unseen := [each for each in regions if each.trouble]:
        return "warn", f"{unseen[0].name} cannot be looked at: {quoted(unseen[0].trouble)}."
    if beginning := [each.name for each in health.controllers if each.term and not each.startup_sweep_done]:
        return "warn", f"{_named(beginning)} has just begun to lead and has not verified everything yet."
    if health.leaks_total:
        return "warn", f"Everything works; {health.leaks_total} of our instances belong to no worker."
    return "good", "Everything works."


def open_breakers(health: SystemHealth) -> list[str]:
    """Regions whose breaker is open: those that the fleet knows of, and those that only the leader has told of yet."""
    told = (each.name for controller in health.controllers for each in _regions(controller) if each.breaker_open)
    return sorted({*(breaker.region for breaker in health.breakers), *told})


def _regions(controller: ControllerHealth) -> tuple[RegionReport, ...]:
    return () if controller.report is None else controller.report.regions


def _named(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def calls_to(report: ControllerReport, whom: str) -> int:
    """How often somebody was called."""
    return sum(count for outcomes in report.calls.get(whom, {}).values() for count in outcomes.values())


def called(report: ControllerReport, whom: str) -> list[tuple[str, int, str]]:
    """The most frequent calls to somebody: operation, how often, and how those ended that did not end well.

    Of the others those are shown that did not always end well.
    """
    rows = []
    for operation, outcomes in report.calls.get(whom, {}).items():
        other = sorted((outcome, count) for outcome, count in outcomes.items() if outcome not in _FINE)
        words = ", ".join(f"{count} {outcome.replace('_', ' ')}" for outcome, count in other)
        rows.append((operation, sum(outcomes.values()), words))
    rows.sort(key=lambda row: (-row[1], row[0]))
    return [row for number, row in enumerate(rows) if number < MOST_OPERATIONS or row[2]]
