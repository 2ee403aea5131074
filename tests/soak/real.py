"""Real minutes: `lcm up` with the simulated cloud, a resource scheduler of its own and a real etcd, under load."""

from __future__ import annotations

import itertools
import re
import sqlite3
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lcm.control_plane.records.kinds import IDEMPOTENT_RESPONSES
from tests.soak.growth import Series
from tests.support.servers.etcd import EtcdServer
from tests.support.servers.lcm_up import LcmUpProcess
from tests.support.servers.processes import LcmProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SPEED = 20.0
SAMPLES = 60
_CONTROLLER = "controller-token-of-a-long-run-0123456789"
_TASKS = re.compile(r"^lcm_asyncio_tasks (\S+)$", re.MULTILINE)
_MAX_ROUND_SECONDS = 2.0
_MIB = 1 << 20


class ProcessMeasurements:
    """Memory, files, threads and tasks of one process."""

    def __init__(self, name: str, process: LcmProcess, url: str) -> None:
        self._process = process
        self._url = url
        self._rss = Series(f"{name}: memory, MiB", slack=20)
        self._files = Series(f"{name}: open files", slack=10, share=0.2, swings=True)
        self._threads = Series(f"{name}: threads", slack=4, share=0.2)
        self._tasks = Series(f"{name}: tasks", slack=30, share=0.2)
        self.all = [self._rss, self._files, self._threads, self._tasks]

    def take(self, seconds: float) -> None:
        """Measure now."""
        folder = Path("/proc", str(self._process.pid))
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
        self._rss.add(seconds, int(status["VmRSS"].split()[0]) * 1024 / _MIB)
        self._threads.add(seconds, int(status["Threads"]))
        self._files.add(seconds, len(list((folder / "fd").iterdir())))
        with suppress(OSError), urllib.request.urlopen(f"{self._url}/metrics", timeout=30) as response:
            if found := _TASKS.search(response.read().decode()):
                self._tasks.add(seconds, float(found.group(1)))


class StoreMeasurements:
    """Rows of the store. Ended lablets, journal, samples and stored responses stay for hours at least."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows = Series("rows but lablets", slack=20)
        self._responses = Series("stored responses", slack=0, judged=False)
        self._lablets = Series("rows of lablets", slack=0, judged=False)
        self._journal = Series("journal entries", slack=0, judged=False)
        self._samples = Series("metric samples", slack=0, judged=False)
        self.all = [self._rows, self._responses, self._lablets, self._journal, self._samples]

    def take(self, seconds: float) -> None:
        """Measure now."""
        with closing(sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True)) as connection:
            names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE name GLOB 'd_*'")]
            tables = [name for name in names if "__" not in name]
            counts = {
                name: connection.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0]
                for name in (*tables, "journal", "samples")
            }
        self._journal.add(seconds, counts.pop("journal"))
        self._samples.add(seconds, counts.pop("samples"))
        self._lablets.add(seconds, counts.pop("d_lablets"))
        self._responses.add(seconds, counts.pop(f"d_{IDEMPOTENT_RESPONSES.name}"))
        self._rows.add(seconds, sum(counts.values()))


def soak(minutes: float, folder: Path, report: Callable[[str], None]) -> tuple[list[Series], list[str]]:
    """Run for so many minutes; returns the measurements, and what went wrong."""
    with ExitStack() as stack:
        etcd = EtcdServer(folder / "etcd").start()
        stack.callback(etcd.stop)
        shared = {"ETCD_ENDPOINTS": etcd.endpoint, "LCM_CONTROLLER_TOKEN": _CONTROLLER}
        up = LcmUpProcess(folder, "up", "--speed", f"{SPEED:g}", COORDINATION="etcd", **shared).unforked()
        stack.callback(up.process.end)
        up.start()
        settings = {**shared, "CONTROL_PLANE_API_URL": up.url}
        # Its memory is measured: it shares none with other processes.
        scheduler = LcmProcess(folder, "scheduler", "resource-scheduler", env=settings, forked=False)
        scheduler_url = f"http://127.0.0.1:{scheduler._env['RESOURCE_SCHEDULER_PORT']}"
        stack.callback(scheduler.end)
        scheduler.start()
        wait_until(lambda: _responds(scheduler_url), "the resource scheduler responds", 300)
        wait_until(lambda: any(each["ready"] for each in up.workers().values()), "a worker is ready", 300)
        measured: list[ProcessMeasurements | StoreMeasurements] = [
            ProcessMeasurements("lcm up", up.process, up.url),
            ProcessMeasurements("resource-scheduler", scheduler, scheduler_url),
            StoreMeasurements(folder / "data" / "lcm.db"),
        ]
        began, span, load = time.monotonic(), minutes * 60, _load(up)
        upcoming = 0.0
        while (now := time.monotonic() - began) < span:
            if now >= upcoming:
                upcoming += span / SAMPLES
                for each in measured:
                    each.take(now)
                report(f"minute {now / 60:.1f} of {minutes:g}")
            next(load)
            time.sleep(min(_MAX_ROUND_SECONDS, span / SAMPLES / 2))
        problems = [f"{each.name} has ended" for each in (up.process, scheduler) if not each.running]
        return [series for each in measured for series in each.all], problems


def _responds(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=30):
            return True
    except OSError:
        return False


def _load(up: LcmUpProcess) -> Iterator[None]:
    """What people do: look, command, change their minds. Whether a command is possible at the moment is no matter."""
    for number in itertools.count():
        with suppress(urllib.error.HTTPError):
            workers = [each for each in up.workers().values() if each["desired_status"] != "TERMINATED"]
            worker = workers[number % len(workers)]
            path = f"/api/workers/{worker['id']}"
            if number % 5 == 0:
                up.ask("POST", f"{path}/{'stop' if worker['desired_status'] == 'RUNNING' else 'start'}")
            elif number % 5 == 1:
                up.ask("POST", f"{path}/{'release' if worker['hold'] else 'hold'}", {"reason": "inspection"})
            elif number % 5 == 2:
                up.ask("POST", "/api/lablets", {"definition": "two-routers", "time_to_live_minutes": 1})
            elif number % 5 == 3:
                up.ask("GET", f"{path}/explain")
            else:
                up.ask("GET", "/api/fleet")
        yield
