"""The installed version of LCM."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Final

DISTRIBUTION: Final = "lcm-fleet"
"""The name to install by. The command and the package to import are `lcm`; on PyPI that name is another project's."""


@cache
def installed_version() -> str:
    """The version, read once: it is read from a file."""
    return version(DISTRIBUTION)
