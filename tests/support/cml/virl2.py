"""Cisco's client library, in a separate environment per version, created once and reused until its lock changes."""

from __future__ import annotations

import fcntl
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
VERSIONS = ("2.8", "2.9", "2.10")
_SESSION = Path(__file__).with_name("virl2_session.py")
_PATIENCE = 400.0


def interpreter(version: str) -> Path:
    """The Python interpreter with this version of the library; installs it if it is missing or its lock has changed."""
    lock = ROOT / "requirements" / f"virl2-{version}.txt"
    folder = Path(sys.prefix) / f"virl2-{version}"
    python, stamp = folder / "bin" / "python", folder / "lock.sha256"
    wanted = hashlib.sha256(lock.read_bytes()).hexdigest()
    with Path(f"{folder}.mutex").open("w") as mutex:
        fcntl.flock(mutex, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            _uv("venv", "--clear", "--python", sys.executable, str(folder))
            _uv("pip", "install", "--require-hashes", "--python", str(python), "-r", str(lock))
            stamp.write_text(wanted)
    return python


def run_session(version: str, url: str, username: str, password: str) -> dict[str, Any]:
    """Run the whole session in a process and return its results."""
    command = [str(interpreter(version)), str(_SESSION), url, username, password]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def _uv(*arguments: str) -> None:
    command = [str(Path(sys.prefix) / "bin" / "uv"), "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
