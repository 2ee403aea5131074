"""The browser of tests, screenshots and measurements: Debian's Chromium. Run as a command to install it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PACKAGE = "chromium"


class BrowserMissingError(Exception):
    """Chromium is missing and could not be installed."""


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


def install() -> None:
    """Install it with the system's package manager, as root or with sudo."""
    if shutil.which("apt-get") is None:
        raise BrowserMissingError(
            "no Chromium, and no apt-get to install it with: install one and set CHROMIUM to its path"
        )
    may = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if may and shutil.which("sudo") is None:
        raise BrowserMissingError(f"no Chromium: as root, run `apt-get install {PACKAGE}`")
    steps = (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", PACKAGE])
    for step in steps:
        if subprocess.run([*may, *step], check=False).returncode != 0:
            raise BrowserMissingError(
                f"no Chromium, and `{' '.join(step)}` failed: install {PACKAGE} as root, then try again"
            )


def main() -> int:
    """Install it; returns the exit code. An error is reported in one line."""
    try:
        if find_chromium() is None:
            install()
    except BrowserMissingError as problem:
        print(f"make: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
