"""`lcm up` as a process, and requests to it."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

from tests.support.servers.etcd import free_ports
from tests.support.servers.processes import LcmProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOKEN = "a-token-that-nobody-can-guess-1234"


class LcmUpProcess:
    """One `lcm up` process, and requests to it."""

    def __init__(self, folder: Path, name: str = "up", *arguments: str, **env: str) -> None:
        self.plane_port = int(env.pop("CONTROL_PLANE_PORT", "") or free_ports(1)[0])
        settings = {
            "CONTROL_PLANE_PORT": str(self.plane_port),
            "LCM_DATA_DIR": str(folder / "data"),
            "LCM_BOOTSTRAP_TOKEN": TOKEN,
            **env,
        }
        self.process = LcmProcess(folder, name, "up", *arguments, env=settings)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.plane_port}"

    def unforked(self) -> LcmUpProcess:
        """The same, but started as a user starts it, with all imports."""
        self.process.forked = False
        return self

    def start(self) -> LcmUpProcess:
        """Start it and wait until it responds."""
        self.process.start()
        wait_until(lambda: self.process.running and self.responds(), "lcm up responds")
        return self

    def responds(self) -> bool:
        """Whether the API responds."""
        try:
            return bool(self.ask("GET", "/ready")["ready"])
        except OSError:
            return False

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """One request as admin."""
        request = urllib.request.Request(
            f"{self.url}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    def workers(self) -> dict[str, dict[str, Any]]:
        """All workers by name."""
        return {worker["name"]: worker for worker in self.ask("GET", "/api/workers")["items"]}

    def until(self, condition: Callable[[dict[str, dict[str, Any]]], bool], what: str) -> dict[str, dict[str, Any]]:
        """Wait until the workers meet a condition."""
        wait_until(lambda: condition(self.workers()), what, patience=300)
        return self.workers()


def ready(*names: str) -> Callable[[dict[str, dict[str, Any]]], bool]:
    """Whether all these workers have a status."""
    return lambda workers: all(workers.get(name, {}).get("ready") for name in names)
