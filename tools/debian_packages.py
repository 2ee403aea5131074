"""Installs programs that tests and checks need from Debian's packages.

For example `python -m tools.debian_packages promtool=prometheus`: the program, and the package that has it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys


class PackageMissingError(Exception):
    """A program is missing and could not be installed."""


def find(program: str) -> str | None:
    """The path of a program, also of one that only root, or only podman, has on its PATH."""
    return shutil.which(program) or shutil.which(program, path="/usr/local/sbin:/usr/sbin:/sbin:/usr/lib/podman")


def install(package: str, program: str) -> None:
    """Install a package with the system's package manager, as root or with sudo."""
    if shutil.which("apt-get") is None:
        raise PackageMissingError(f"no {program}, and no apt-get to install it with: install it by hand")
    may = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if may and shutil.which("sudo") is None:
        raise PackageMissingError(f"no {program}: as root, run `apt-get install {package}`")
    # Another program may be installing packages right now, such as the unattended upgrades of a new machine.
    waits = ("DPkg::Lock::Timeout=120", "Acquire::http::Timeout=20", "Acquire::https::Timeout=20")
    apt = ["apt-get", *(part for each in waits for part in ("-o", each))]
    steps = ([*apt, "update"], [*apt, "install", "-y", "--no-install-recommends", package])
    for step in steps:
        if subprocess.run([*may, *step], check=False).returncode != 0:
            raise PackageMissingError(
                f"no {program}, and `apt-get {step[len(apt)]}` failed: install {package} as root, then try again"
            )


def main(wanted: list[str]) -> int:
    """Install each `program=package` whose program is not on the PATH; returns the exit code."""
    try:
        for each in wanted:
            program, _, package = each.partition("=")
            if find(program) is None:
                install(package, program)
    except PackageMissingError as problem:
        print(f"make: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
