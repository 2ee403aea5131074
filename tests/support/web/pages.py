"""Pages in a browser, monitored for console errors, requests to other hosts, and accessibility violations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, Protocol

from tests.support.servers.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, WebError

Scheme = Literal["light", "dark"]

ARTEFACTS = ROOT / "tests" / "artefacts"
DESKTOP = (1280, 800)
PHONE = (390, 844)

_AXE = ROOT / "tests" / "integration" / "browser" / "vendor" / "axe.min.js"
_LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa"]
_PATIENCE = 90_000.0  # milliseconds; generous, because the test machine may be busy


class World(Protocol):
    """A control plane that serves pages."""

    @property
    def url(self) -> str:
        """The base URL."""

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Send a request as admin."""


class PageWatch:
    """Records what pages must not do: console errors, failures, and requests to other hosts."""

    def __init__(self, *origins: str) -> None:
        self._origins = tuple(f"{origin}/" for origin in origins)
        self._allowed: list[re.Pattern[str]] = []
        self._messages: list[str] = []

    def allow(self, pattern: str) -> None:
        """Allow messages that match a pattern, also past ones: for tests that provoke a failure."""
        self._allowed.append(re.compile(pattern))

    def follow(self, context: BrowserContext) -> None:
        """Monitor all pages of a context."""
        context.on("console", self._console)
        context.on("weberror", self._error)
        context.on("request", self._request)

    @property
    def complaints(self) -> list[str]:
        """The recorded messages that are not allowed."""
        return [message for message in self._messages if not any(pattern.search(message) for pattern in self._allowed)]

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            self._messages.append(f"console: {message.text} ({message.location.get('url', '')})")

    def _error(self, error: WebError) -> None:
        self._messages.append(f"page error: {error.error}")

    def _request(self, request: Request) -> None:
        if not request.url.startswith((*self._origins, "data:", "blob:")):
            self._messages.append(f"a request to another host: {request.url}")


class Visits:
    """Opens pages for one test, each in its own monitored browser context."""

    def __init__(self, browser: Browser, folder: Path) -> None:
        self._browser = browser
        self._folder = folder
        self._contexts: list[BrowserContext] = []
        self._watches: list[PageWatch] = []
        self._tokens: dict[tuple[str, str], str] = {}

    def context(
        self,
        world: World,
        *,
        url: str | None = None,
        scheme: Scheme = "light",
        size: tuple[int, int] = DESKTOP,
        zone: str | None = None,
        scripts: bool = True,
    ) -> tuple[BrowserContext, PageWatch]:
        """A browser context without a session. `url` replaces the URL of the control plane, for a proxy.

        `zone` is the time zone of the viewer; without `scripts` the browser runs none.
        """
        base_url = url or world.url
        context = self._browser.new_context(
            base_url=base_url,
            color_scheme=scheme,
            viewport={"width": size[0], "height": size[1]},
            has_touch=size == PHONE,
            reduced_motion="reduce",
            timezone_id=zone,
            locale="en-US",  # the order of the parts of a date field, whatever the machine's language is
            java_script_enabled=scripts,
        )
        context.set_default_timeout(_PATIENCE)
        context.set_default_navigation_timeout(_PATIENCE)
        watch = PageWatch(base_url)
        watch.follow(context)
        self._contexts.append(context)
        self._watches.append(watch)
        return context, watch

    def open(
        self,
        world: World,
        path: str = "/",
        *,
        role: str = "admin",
        url: str | None = None,
        scheme: Scheme = "light",
        size: tuple[int, int] = DESKTOP,
        zone: str | None = None,
        scripts: bool = True,
    ) -> tuple[Page, PageWatch]:
        """A page of a signed-in user."""
        context, watch = self.context(world, url=url, scheme=scheme, size=size, zone=zone, scripts=scripts)
        response = context.request.post("/api/session", data={"token": self.token(world, role)})
        assert response.status == 201, response.text()
        page = context.new_page()
        page.goto(path)
        return page, watch

    def token(self, world: World, role: str) -> str:
        """A token with this role, created on first use."""
        if (world.url, role) not in self._tokens:
            number = len(world.ask("GET", "/api/tokens")["items"])
            made = world.ask("POST", "/api/tokens", {"name": f"{role}-{number}", "role": role})
            self._tokens[world.url, role] = made["token"]
        return self._tokens[world.url, role]

    def end(self, *, pictures: bool = True) -> list[str]:
        """Close all pages, after a screenshot of each if `pictures`; returns the recorded complaints."""
        if pictures:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            pages = [page for context in self._contexts for page in context.pages]
            for number, page in enumerate(pages):
                page.screenshot(path=f"{self._folder}{f'-{number}' if number else ''}.png", animations="disabled")
        for context in self._contexts:
            context.close()
        return [complaint for watch in self._watches for complaint in watch.complaints]


def accessibility_violations(page: Page) -> list[str]:
    """Accessibility violations of the page, by axe's rules of levels A and AA."""
    if not page.evaluate("typeof window.axe === 'object'"):
        # Evaluated, not added as an element: the content security policy of the page would block it.
        page.evaluate(_AXE.read_text(encoding="utf-8"))
    result = page.evaluate(
        "levels => axe.run(document, {runOnly: {type: 'tag', values: levels}, resultTypes: ['violations']})", _LEVELS
    )
    assert result["passes"], "axe did not check anything"
    return [
        f"{violation['id']} ({violation['impact']}): {node['html'][:160]} {node.get('failureSummary', '')}"
        for violation in result["violations"]
        for node in violation["nodes"]
    ]
