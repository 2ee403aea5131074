"""Pages and fragments from templates. All values are escaped; only our own markup is not."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from lcm.control_plane.services import get_services
from lcm.control_plane.web.assets import ASSETS
from lcm.control_plane.web.forms import parse_form_time
from lcm.core import clock
from lcm.model.formatting import format_usd, humanize_duration, replace_clock_times

if TYPE_CHECKING:
    from fastapi import Request

    from lcm.control_plane.web.auth import WebUser

NAVIGATION = (
    ("overview", "Overview", "/"),
    ("fleet", "Fleet", "/fleet"),
    ("lablets", "Lablets", "/lablets"),
    ("schedules", "Schedules", "/schedules"),
    ("bookings", "Bookings", "/bookings"),
    ("templates", "Templates", "/templates"),
    ("activity", "Activity", "/activity"),
    ("notifications", "Notifications", "/notifications"),
    ("teams", "Teams", "/teams"),
    ("system", "System", "/system"),
    ("settings", "Settings", "/settings"),
)
"""The pages in the navigation: id, title, URL."""
PLACEHOLDER = "\N{EN DASH}"
DONE_EVENT = "lcm:done"
"""The event that informs scripts of a successful change."""


def time_tag(time: datetime | None, default: str = PLACEHOLDER) -> Markup:
    """A relative time, with the exact time as its title. Scripts keep it up to date."""
    if time is None:
        return Markup("<span class=muted>{}</span>").format(default)
    now = clock.now()
    text = f"{humanize_duration(now - time)} ago" if time <= now else f"in {humanize_duration(time - now)}"
    exact = time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(time.astimezone(UTC).isoformat(), exact, text)


def clock_times(text: str) -> Markup:
    """A text whose times of day scripts show in the zone of the viewer."""

    def tag(found: str, moment: datetime) -> str:
        return Markup('<time class="clock" datetime="{}">{}</time>').format(moment.isoformat(), found)

    return Markup(replace_clock_times(str(escape(text)), clock.now(), tag))  # noqa: S704 - the text is escaped


def utc_minute(text: str) -> str:
    """The text of a time field as browsers read it: in UTC, without a zone. Other text is returned unchanged."""
    time = parse_form_time(text)
    return text if time is None else time.replace(tzinfo=None).isoformat(timespec="minutes")


def usd(amount: float | None, digits: int = 2) -> str:
    """A price such as `$3.96`; a dash for None. Small prices keep their significant digits."""
    return PLACEHOLDER if amount is None else format_usd(amount, digits)


def dollars(amount: float) -> str:
    """An amount, to the cent."""
    return f"${amount:,.2f}"


def number(amount: float | None, digits: int = 0) -> str:
    """A number such as `12,345`."""
    return PLACEHOLDER if amount is None else f"{amount:,.{digits}f}"


def minutes(amount: float) -> str:
    """A duration in minutes as text, such as `1 hour 30 minutes`."""
    return humanize_duration(timedelta(minutes=amount))


def as_json(value: Any) -> str:
    """JSON for a data attribute; the template escapes it."""
    return json.dumps(value, separators=(",", ":"), default=str)


def sparkline(points: list[float] | None, width: int = 96, height: int = 24) -> Markup:
    """A small line chart of percentages, newest at the right."""
    if not points:
        return Markup('<span class="muted">{}</span>').format(PLACEHOLDER)
    step = width / max(1, len(points) - 1)
    line = " ".join(
        f"{index * step:.1f},{height - 1 - min(100.0, max(0.0, point)) / 100 * (height - 2):.1f}"
        for index, point in enumerate(points)
    )
    label = f"CPU load, now {points[-1]:.0f} percent, at most {max(points):.0f} percent"
    return Markup(
        '<svg class="spark" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img" aria-label="{label}">'
        '<polyline points="{line}"/></svg>'
    ).format(w=width, h=height, label=label, line=line)


@lru_cache(maxsize=1)
def template_environment() -> Environment:
    """The Jinja environment. There is one, which keeps the compiled templates."""
    jinja = Environment(
        loader=PackageLoader("lcm.control_plane.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters |= {
        "time": time_tag,
        "clock_times": clock_times,
        "utc_minute": utc_minute,
        "usd": usd,
        "dollars": dollars,
        "number": number,
        "minutes": minutes,
        "json": as_json,
        "sparkline": sparkline,
        "e": escape,
    }
    jinja.globals |= {"static": ASSETS.url, "navigation": NAVIGATION, "new_key": lambda: clock.new_id("form")}
    return jinja


def render_fragment(
    template: str, *, status: int = 200, headers: dict[str, str] | None = None, **values: Any
) -> HTMLResponse:
    """Render a part of a page."""
    text = template_environment().get_template(template).render(now=clock.now(), **values)
    return HTMLResponse(text, status, headers)


async def render_page(
    request: Request,
    user: WebUser,
    template: str,
    *,
    here: str,
    title: str,
    status: int = 200,
    **values: Any,
) -> HTMLResponse:
    """Render a whole page with its header: the user, the fleet summary, holds and breakers."""
    # What the whole fleet does and costs is for roles of the fleet.
    summary = None if user.in_teams_only else await get_services(request).fleet.summary()
    text = (
        template_environment()
        .get_template(template)
        .render(now=clock.now(), here=here, title=title, user=user, summary=summary, **values)
    )
    return HTMLResponse(text, status)


async def render_not_found(request: Request, user: WebUser, *, here: str, noun: str, record_id: str) -> HTMLResponse:
    """Render the page that says that a record does not exist."""
    return await render_page(
        request, user, "not_found.html", here=here, title=f"No such {noun}", status=404, noun=noun, record_id=record_id
    )


def render_toast(message: str, *, kind: str = "good", status: int = 200, triggers: str = "") -> HTMLResponse:
    """Render a short message at the edge of the page. `triggers` are events for scripts, such as `lcm:done`."""
    headers = {"HX-Trigger": triggers} if triggers else None
    return render_fragment("shared/_toast.html", status=status, headers=headers, kind=kind, message=message)
