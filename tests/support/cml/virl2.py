"""Cisco's client library and command line, in an environment for each version.

Environments are created once and reused until their lock changes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
VERSIONS = ("2.8", "2.9", "2.10")
_SESSION = Path(__file__).with_name("virl2_session.py")
_COMMANDS = Path(__file__).with_name("virlutils_session.py")
_VIRLUTILS = "virlutils-2.6"
_PATIENCE = 400.0


def interpreter(name: str) -> Path:
    """The Python interpreter of an environment; creates that if it is missing or its lock has changed."""
    lock = ROOT / "requirements" / f"{name}.txt"
    folder = Path(sys.prefix) / name
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
    command = [str(interpreter(f"virl2-{version}")), str(_SESSION), url, username, password]
    seen: dict[str, Any] = json.loads(_output(command))
    return seen


def run_commands(folder: Path, url: str, username: str, password: str, commands: list[list[str]]) -> dict[str, str]:
    """Run commands of virlutils one after the other in a folder; returns what each printed. All must succeed."""
    host = url.removeprefix("https://")
    settings = {"VIRL_HOST": host, "VIRL_USERNAME": username, "VIRL_PASSWORD": password, "CML_VERIFY_CERT": "false"}
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **settings}
    command = [str(interpreter(_VIRLUTILS)), str(_COMMANDS), json.dumps(commands)]
    printed: dict[str, str] = json.loads(_output(command, cwd=folder, env=environment).splitlines()[-1])
    return printed


def _output(command: list[str], **options: Any) -> str:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE, check=False, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    printed: str = done.stdout
    return printed


def _uv(*arguments: str) -> None:
    command = [str(Path(sys.prefix) / "bin" / "uv"), "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
