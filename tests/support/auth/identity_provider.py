"""A real identity provider for tests: the certified npm package oidc-provider. Run as a command to install it.

It calls itself `localhost`, while control planes of tests are at `127.0.0.1`: for a browser these are two sites, as an
organization's provider and LCM are.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from tools.debian_packages import PackageMissingError, install

ROOT = Path(__file__).parents[3]
SOURCE = Path(__file__).parent / "provider"
CLIENT_ID = "lcm"
CLIENT_SECRET = "a secret of tests: with +, % and :"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_PROGRAMS = {"node": "nodejs", "npm": "npm"}
_INSTALL = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")


def installed() -> Path:
    """The folder with the provider; installed at the first use, once for all test processes."""
    locked = (SOURCE / "package-lock.json").read_bytes()
    folder = ROOT / ".venv" / f"identity-provider-{hashlib.sha256(locked).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".ready").exists():
            for program, package in _PROGRAMS.items():
                if shutil.which(program) is None:
                    install(package, program)
            for name in ("package.json", "package-lock.json"):
                shutil.copyfile(SOURCE / name, folder / name)
            done = subprocess.run(_INSTALL, cwd=folder, check=False, capture_output=True, text=True)
            if done.returncode != 0:
                raise PackageMissingError(f"`{' '.join(_INSTALL)}` failed in {folder}:\n{done.stdout}{done.stderr}")
            (folder / ".ready").touch()
        # Beside its modules, where node looks for them; copied each time, as it is ours.
        shutil.copyfile(SOURCE / "provider.mjs", folder / "provider.mjs")
    return folder


class IdentityProvider:
    """One process of the provider."""

    def __init__(self, folder: Path) -> None:
        self._log_path = folder / "provider.log"
        self._process: subprocess.Popen[str] | None = None
        self.issuer = ""

    def start(self) -> IdentityProvider:
        """Start it and wait until it listens."""
        node = shutil.which("node")
        script = installed() / "provider.mjs"
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [node or "node", str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("http://localhost:"):
                self.issuer = line.strip()
                return self
        raise AssertionError(f"the provider did not start:\n{self._log_path.read_text()}")

    def stop(self) -> None:
        """End it."""
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def change(self, **state: Any) -> list[dict[str, Any]]:
        """Change people, keys, clock and so on (see provider.mjs); returns the requests it has received so far."""
        port = self.issuer.rpartition(":")[2]
        request = urllib.request.Request(f"http://127.0.0.1:{port}/control", json.dumps(state).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=60) as response:
            found: list[dict[str, Any]] = json.load(response)
            return found

    def serve(self, *urls: str, codes: bool = True, **people: list[str]) -> None:
        """Know the control planes at these addresses, and people with their groups; `codes` are for devices."""
        client = {
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            "redirect_uris": [f"{url}/sign-in/oidc/callback" for url in urls],
            "post_logout_redirect_uris": [f"{url}/sign-in" for url in urls],
            "grant_types": ["authorization_code", "refresh_token", *([DEVICE_GRANT] if codes else [])],
            "response_types": ["code"],
        }
        known = {name: {"groups": groups} for name, groups in people.items()}
        defaults = {"silent": False, "clock": 0, "refresh": True, "device": True}
        self.change(clients=[client], people=known, **defaults)

    def count(self, path: str) -> int:
        """How many requests a path got."""
        return sum(each.get("path") == path for each in self.change())


def main() -> int:
    """Install it; returns the exit code. An error is reported in one line."""
    try:
        installed()
    except PackageMissingError as problem:
        print(f"make: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
