"""The browser of tests, screenshots and measurements: Debian's Chromium. Run as a command to install it.

Its headless shell has the same engine without the windows, menus and profile of a desktop browser: a new context costs
a third of the processor time.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

from tools.debian_packages import PackageMissingError, install

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

SHELL = "chromium-headless-shell"  # program and package
NAMES = (SHELL, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PACKAGE = "chromium"


class BrowserMissingError(Exception):
    """Chromium is missing."""


def find_chromium() -> str | None:
    """The path of the browser: $CHROMIUM, or the first on PATH."""
    if chosen := os.environ.get("CHROMIUM"):
        return shutil.which(chosen)
    return next((place for name in NAMES if (place := shutil.which(name)) is not None), None)


def launch(playwright: Playwright, *arguments: str) -> Browser:
    """A browser without a window."""
    place = find_chromium()
    if place is None:
        raise BrowserMissingError(f"no Chromium: run `make browser`, or set CHROMIUM to one of {', '.join(NAMES)}")
    # Root may not use the sandbox.
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    return playwright.chromium.launch(executable_path=place, args=[*flags, *arguments])


def main() -> int:
    """Install it; returns the exit code. An error is reported in one line."""
    if not os.environ.get("CHROMIUM") and shutil.which(SHELL) is None:
        try:
            install(SHELL, "headless Chromium")
        except PackageMissingError as problem:
            print(f"make: {problem}. Until then, tests use a whole Chromium, which is slower", file=sys.stderr)
    try:
        if find_chromium() is None:
            install(PACKAGE, "Chromium")
    except PackageMissingError as problem:
        print(f"make: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
