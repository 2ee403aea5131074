"""Adds all pages to the app of the control plane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.http import routing
from lcm.control_plane.web import api_reference, assets, auth, overview_page, sign_in
from lcm.control_plane.web.admin import activity_page, notifications_page, settings_page, system_page, templates_page
from lcm.control_plane.web.auth import is_fragment
from lcm.control_plane.web.calendar import (
    booking_changes,
    booking_form,
    booking_page,
    bookings_page,
    class_links,
    schedules_page,
)
from lcm.control_plane.web.forms import FORM_ALREADY_SENT
from lcm.control_plane.web.lablets import changes, create, definitions_page, seat_links, terminate
from lcm.control_plane.web.lablets import detail_page as lablet_page
from lcm.control_plane.web.lablets import list_page as lablets_page
from lcm.control_plane.web.my import actions as my_actions
from lcm.control_plane.web.my import page as my_page
from lcm.control_plane.web.my import seat_page
from lcm.control_plane.web.rendering import render_fragment, render_toast
from lcm.control_plane.web.teams import assign_definition, assign_lablet, teams_page
from lcm.control_plane.web.workers import actions, dialogs
from lcm.control_plane.web.workers import detail_page as worker_page
from lcm.control_plane.web.workers import list_page as workers_page
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from fastapi import FastAPI, Request, Response

    from lcm.model.problems import Problem

_PAGES = (
    sign_in,
    actions,
    dialogs,
    worker_page,
    workers_page,
    overview_page,
    lablets_page,
    create,
    changes,
    seat_links,
    terminate,
    lablet_page,
    assign_definition,  # before the page, whose last route has a parameter in this place
    definitions_page,
    my_page,
    my_actions,
    seat_page,
    activity_page,
    notifications_page,
    schedules_page,
    bookings_page,
    booking_form,
    booking_changes,
    booking_page,
    class_links,
    teams_page,
    assign_lablet,
    system_page,
    settings_page,
    templates_page,
)
ROUTERS = (assets.router, api_reference.router, *(each.router for each in _PAGES))


def install(app: FastAPI) -> None:
    """Serve the pages, and show errors to browsers as pages."""
    auth.install(app)
    seat_page.install(app)
    app.state.error_page = error_page
    for router in ROUTERS:
        routing.include_routes(app, router)


def error_page(request: Request, problem: Problem) -> Response | None:
    """An error as a page or a toast; None for API clients, which get problem details."""
    if request.url.path.startswith("/api/"):
        return None
    if is_fragment(request):
        if problem.code is ProblemCode.IDEMPOTENCY_MISMATCH:
            # The first response was lost, and the form was changed since.
            problem = problem.model_copy(update={"detail": FORM_ALREADY_SENT})
        return render_toast(problem.detail or problem.title, kind="bad", status=problem.status)
    if "text/html" in request.headers.get("Accept", ""):
        title = "Page not found" if problem.status == 404 else problem.title
        return render_fragment("error.html", status=problem.status, title=title, detail=problem.detail or "")
    return None
