"""Latency of the command line: help and a worker list, each in a fresh process."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.support.output import report
from tests.support.servers.control_plane import ControlPlaneProcess
from tests.support.servers.etcd import EtcdServer

if TYPE_CHECKING:
    from collections.abc import Mapping

RUNS = 15
WORKERS = 20
LCM = Path(sys.executable).with_name("lcm")


def took(arguments: list[str], env: Mapping[str, str]) -> list[float]:
    """Milliseconds from start to first output per run; the first two runs warm the disk cache and are dropped."""
    spans = []
    for _ in range(RUNS + 2):
        began = time.perf_counter()
        with subprocess.Popen([str(LCM), *arguments], env=env, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.read(1), f"lcm {' '.join(arguments)} printed nothing"
            spans.append((time.perf_counter() - began) * 1000)
            process.stdout.read()
        assert process.returncode == 0
    return spans[2:]


def measure(name: str, arguments: list[str], env: Mapping[str, str], aim: str) -> None:
    """Report the median and the minimum: on a busy machine they differ a lot."""
    spans = took(arguments, env)
    report(f"CLI: {name}, to first output", statistics.median(spans), "ms", aim=aim, beside=f"best {min(spans):.0f} ms")


def main() -> None:
    measure("lcm --help", ["--help"], {"PATH": os.environ["PATH"]}, "300")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        etcd = EtcdServer(folder / "etcd").start()
        plane = ControlPlaneProcess(folder, etcd, "bench")
        try:
            plane.start()
            for number in range(WORKERS):
                plane.lcm("workers", "create", f"worker-{number:02}", "--template", "small", "--stopped")
            env = plane.environment()
            measure(f"lcm workers list of {WORKERS}", ["workers", "list"], env, "250")
            measure("the same, -o json", ["workers", "list", "-o", "json"], env, "250")
        finally:
            plane.process.end()
            etcd.stop()
