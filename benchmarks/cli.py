"""How long a person waits for the command line: help, and a list of a fleet, each in a fresh process."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.support.output import say
from tests.support.servers.control_plane import LcmPlane
from tests.support.servers.etcd import EtcdServer

if TYPE_CHECKING:
    from collections.abc import Mapping

RUNS = 15
WORKERS = 20
LCM = Path(sys.executable).with_name("lcm")


def took(arguments: list[str], env: Mapping[str, str]) -> list[float]:
    """Milliseconds from start to first output, run by run; the first two warm the disk's cache and do not count."""
    spans = []
    for _ in range(RUNS + 2):
        began = time.perf_counter()
        with subprocess.Popen([str(LCM), *arguments], env=env, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.read(1), f"lcm {' '.join(arguments)} said nothing"
            spans.append((time.perf_counter() - began) * 1000)
            process.stdout.read()
        assert process.returncode == 0
    return spans[2:]


def tell(name: str, arguments: list[str], env: Mapping[str, str], aim: str) -> None:
    """The median, and the best: on a busy machine they lie far apart."""
    spans = took(arguments, env)
    say(f"CLI: {name}, to first output", statistics.median(spans), "ms", aim=aim, beside=f"best {min(spans):.0f} ms")


def main() -> None:
    tell("lcm --help", ["--help"], {"PATH": os.environ["PATH"]}, "300")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        etcd = EtcdServer(folder / "etcd").start()
        plane = LcmPlane(folder, etcd, "bench")
        try:
            plane.start()
            for number in range(WORKERS):
                plane.lcm("workers", "create", f"worker-{number:02}", "--template", "small", "--stopped")
            env = plane.environment()
            tell(f"lcm workers list of {WORKERS}", ["workers", "list"], env, "700")
            tell("the same, -o json", ["workers", "list", "-o", "json"], env, "700")
        finally:
            plane.process.end()
            etcd.stop()
