"""The control plane's HTTP app."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.auth.headers import SecurityHeaders
from lcm.control_plane.http import errors, routing
from lcm.control_plane.http.api import (
    activity,
    auth,
    definitions,
    events,
    fleet,
    lablets,
    session,
    system,
    templates,
    workers,
)
from lcm.control_plane.http.internal import lablets as internal_lablets
from lcm.control_plane.http.internal import workers as internal
from lcm.control_plane.http.openapi import DocumentedApp
from lcm.control_plane.web import routing as site

if TYPE_CHECKING:
    from fastapi import FastAPI

    from lcm.control_plane.services import Parts


def make_app(parts: Parts, version: str) -> FastAPI:
    """All routes over these parts."""
    app = DocumentedApp(
        title="LCM control plane",
        version=version,
        description="The only owner of the fleet's records: say what you want here, and see why it is as it is.",
        redirect_slashes=False,
        docs_url=None,  # its pages load scripts from elsewhere, which our own headers forbid
        redoc_url=None,
    )
    app.state.parts = parts
    rooms = (
        workers,
        templates,
        lablets,
        definitions,
        fleet,
        activity,
        system,
        events,
        auth,
        session,
        internal,
        internal_lablets,
    )
    routers = [room.router for room in rooms]
    app.documented = routers
    errors.install(app, [*routers, *site.ROUTERS])
    for router in routers:
        routing.include(app, router)
    site.install(app)
    routing.install(app)
    app.add_middleware(SecurityHeaders)
    return app
