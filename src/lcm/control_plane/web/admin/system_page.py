"""The System page: the health of controllers, mirror and control plane, and for admins the open sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.auth.session_cookies import session_id_from
from lcm.control_plane.auth.session_record import storage_key
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.http.api.auth import end_session_by_id
from lcm.control_plane.services import get_services
from lcm.control_plane.web.auth import AdminUser, CurrentUser, is_fragment
from lcm.control_plane.web.rendering import DONE_EVENT, render_fragment, render_page, render_toast
from lcm.model.formatting import as_clause, join_names
from lcm.model.problems import ProblemCode
from lcm.model.system import ControllerVerdict

if TYPE_CHECKING:
    from lcm.model.system import ControllerHealth, ControllerReport, RegionReport, SystemHealth

router = APIRouter(include_in_schema=False)
CALL_TARGETS = {"aws": "AWS", "cml": "CML servers", "control-plane": "the control plane"}
MAX_OPERATIONS = 8
MAX_SESSIONS = 100
SessionIdPath = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]
_SUCCESS_OUTCOMES = ("ok", "made")


@router.get("/system")
async def system_page(request: Request, user: CurrentUser) -> HTMLResponse:
    """The whole page, or only its content for a refresh by a script."""
    health = await get_services(request).system.health()
    values: dict[str, Any] = {
        "health": health,
        "verdict": health_summary(health),
        "open_breakers": open_breakers(health),
        "frequent_calls": frequent_calls,
        "count_calls": count_calls,
        "call_targets": CALL_TARGETS,
    }
    if is_fragment(request):
        return render_fragment("admin/_system.html", **values)
    if user.can_administer:
        values |= await _sessions(request)
    return await render_page(request, user, "admin/system.html", here="system", title="System", **values)


@router.get("/system/sessions")
async def session_list(request: Request, user: AdminUser) -> HTMLResponse:
    """The open sessions, for a refresh by a script."""
    return render_fragment("admin/_sessions.html", **await _sessions(request))


@router.get("/system/sessions/{session_id}/confirm-end")
async def confirm_end_of_session(request: Request, user: AdminUser, session_id: SessionIdPath) -> HTMLResponse:
    """The dialog before a session is ended."""
    found = await get_services(request).authenticator.sessions.find(session_id)
    if found is None:
        raise ProblemError(ProblemCode.NOT_FOUND, "this session does not exist or has already ended")
    return render_fragment("admin/_confirm_end_session.html", session=found)


@router.post("/system/sessions/{session_id}/end")
async def end_session(request: Request, user: AdminUser, session_id: SessionIdPath) -> HTMLResponse:
    """End the session of a user."""
    ended = await end_session_by_id(get_services(request).authenticator, user.caller, session_id)
    return render_toast(f"The session of {ended.name} has ended", triggers=DONE_EVENT)


async def _sessions(request: Request) -> dict[str, Any]:
    page = await get_services(request).authenticator.sessions.page(limit=MAX_SESSIONS)
    own_id = session_id_from(request.cookies, secure=request.url.scheme == "https") or ""
    return {"sessions": page.items, "more_sessions": page.next_cursor is not None, "own_session": storage_key(own_id)}


def health_summary(health: SystemHealth) -> tuple[str, str]:
    """The most severe problem: `good`, `warn` or `bad`, and a sentence."""
    unhealthy = [each for each in health.controllers if each.verdict is not ControllerVerdict.HEALTHY]
    mirror = health.plane.mirror
    if mirror is not None and mirror.trouble:  # first, because it is also why no controller leads or reports
        return "bad", f"Degraded: {mirror.trouble}. Commands are recorded; controllers carry them out later."
    if not health.controllers:
        return "bad", "No controller has reported yet: no worker is managed."
    if unhealthy:
        return "bad", f"{unhealthy[0].name} is not healthy: {unhealthy[0].said}."
    notifications = health.plane.notifications
    if notifications is not None and notifications.trouble:
        return "warn", f"Degraded: {notifications.trouble}."
    if health.hold is not None:
        return "warn", "All systems are healthy. The fleet is on hold, so no changes are made."
    if suspended := open_breakers(health):
        return "warn", f"A breaker is open. No worker in {join_names(suspended)} is marked as lost."
    regions = [each for controller in health.controllers for each in _regions(controller)]
    if failed_regions := [each for each in regions if each.trouble]:
        return "warn", f"{failed_regions[0].name} cannot be read: {as_clause(failed_regions[0].trouble)}."
    if starting := [each.name for each in health.controllers if each.term and not each.startup_sweep_done]:
        return "warn", f"{join_names(starting)} has just become leader and has not completed its startup sweep yet."
    if health.leaks_total:
        return (
            "warn",
            f"All systems are healthy. {health.leaks_total} instances of this installation belong to no worker.",
        )
    return "good", "All systems are healthy."


def open_breakers(health: SystemHealth) -> list[str]:
    """Regions with an open breaker: those recorded for the fleet, and those that only the leader has reported yet."""
    reported = (each.name for controller in health.controllers for each in _regions(controller) if each.breaker_open)
    return sorted({*(breaker.region for breaker in health.breakers), *reported})


def _regions(controller: ControllerHealth) -> tuple[RegionReport, ...]:
    return () if controller.report is None else controller.report.regions


def count_calls(report: ControllerReport, target: str) -> int:
    """The number of calls to a target."""
    return sum(count for outcomes in report.calls.get(target, {}).values() for count in outcomes.values())


def frequent_calls(report: ControllerReport, target: str) -> list[tuple[str, int, str]]:
    """The most frequent calls to a target: operation, count, and the outcomes other than success.

    Less frequent operations are included if they had such outcomes.
    """
    rows = []
    for operation, outcomes in report.calls.get(target, {}).items():
        other = sorted((outcome, count) for outcome, count in outcomes.items() if outcome not in _SUCCESS_OUTCOMES)
        outcomes_text = ", ".join(f"{count} {outcome.replace('_', ' ')}" for outcome, count in other)
        rows.append((operation, sum(outcomes.values()), outcomes_text))
    rows.sort(key=lambda row: (-row[1], row[0]))
    return [row for number, row in enumerate(rows) if number < MAX_OPERATIONS or row[2]]
