"""The browser of tests, screenshots and measurements: Debian's Chromium. As a command it installs one where none is."""

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


class NoBrowser(Exception):
    """There is none, and none could be installed."""


def found() -> str | None:
    """Where it is: what $CHROMIUM names, or the first on the path."""
    if chosen := os.environ.get("CHROMIUM"):
        return shutil.which(chosen)
    return next((place for name in NAMES if (place := shutil.which(name)) is not None), None)


def launch(playwright: Playwright, *arguments: str) -> Browser:
    """A browser without a window."""
    place = found()
    if place is None:
        raise NoBrowser(f"no Chromium: run `make browser`, or set CHROMIUM to one of {', '.join(NAMES)}")
    # Root may not use the sandbox.
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    return playwright.chromium.launch(executable_path=place, args=[*flags, *arguments])


def install() -> None:
    """By the system's own package manager, as root or as somebody who may be."""
    if shutil.which("apt-get") is None:
        raise NoBrowser("no Chromium, and no apt-get to install it with: install one and set CHROMIUM to its path")
    may = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if may and shutil.which("sudo") is None:
        raise NoBrowser(f"no Chromium: as root, run `apt-get install {PACKAGE}`")
    steps = (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", PACKAGE])
    for step in steps:
        if subprocess.run([*may, *step], check=False).returncode != 0:
            raise NoBrowser(f"no Chromium, and `{' '.join(step)}` failed: install {PACKAGE} as root, then try again")


def main() -> int:
    """The exit code; what is wrong is said in one line."""
    try:
        if found() is None:
            install()
    except NoBrowser as problem:
        print(f"make: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
