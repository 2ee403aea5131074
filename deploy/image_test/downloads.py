"""What the tests of the image take from Debian, PyPI and npm. Nothing else that they do needs a network.

`python -m deploy.image_test.downloads` gets all of it; what is there already is not asked for again.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "image-test"
BIN = Path(sys.executable).parent
_SUITE = "trixie"  # its Python is that of the image
_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "any")
_MONGOSH = "mongosh@2.12.0"


class CommandFailedError(Exception):
    """A command ended with an error."""


def run(*command: str | Path, env: dict[str, str] | None = None, cwd: Path = ROOT, seconds: float = 1800) -> str:
    """Run a command; its output is shown only if it fails."""
    words = [str(each) for each in command]
    done = subprocess.run(
        words, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=seconds, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise CommandFailedError(f"{' '.join(words)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def kept(name: str, make: Callable[[Path], Any]) -> Path:
    """A file or folder that later runs use again, and others at the same time; a half-made one is never used."""
    path = FOLDER / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="draft-", dir=FOLDER) as own:
            draft = Path(own) / path.name
            make(draft)
            with suppress(OSError):  # another run was faster
                draft.rename(path)
        assert path.exists()
    return path


def mongosh() -> Path:
    """MongoDB's shell, installed once."""
    made = kept("servers/mongosh", lambda folder: run("npm", "install", "--no-audit", "--prefix", folder, _MONGOSH))
    return made / "node_modules" / ".bin" / "mongosh"


def debian(name: str, packages: str) -> Path:
    """A minimal Debian with some packages."""
    command = ("mmdebstrap", "--variant=minbase", "--format=tar", f"--include={packages}", _SUITE)
    return kept(f"{name}.tar", lambda tar: run(*command, tar))


def python_base() -> Path:
    """What the recipe of the image begins with."""
    return debian("python", "python3,python3-venv,python-is-python3,ca-certificates")


def servers_base() -> Path:
    """What etcd, MongoDB, its shell and a simulated cloud run on."""
    return debian("servers-base", "python3,nodejs,libcurl4t64,ca-certificates")


def wheels() -> Path:
    """The packages of an installation, as the image gets them."""
    only = [f"--platform={each}" for each in _PLATFORMS]
    pip = (BIN / "python", "-m", "pip", "download", "--quiet", "--require-hashes", "--only-binary=:all:")
    return kept(
        f"wheels-{_digest('deploy.txt')}",
        lambda folder: run(*pip, "--python-version=3.13", *only, "-r", "requirements/deploy.txt", "-d", folder),
    )


def site() -> Path:
    """The packages that a simulated cloud imports."""
    install = (BIN / "uv", "pip", "install", "--quiet", "-c", "requirements/dev.txt", "-r", "pyproject.toml")
    target = ("--python-version=3.13", "--python-platform=x86_64-manylinux_2_28", "--extra=aws")
    return kept(
        f"site-{_digest('dev.txt')}",
        lambda folder: run(*install, *target, "moto[ec2,cloudwatch,server]", "--target", folder),
    )


def _digest(requirements: str) -> str:
    return hashlib.sha256((ROOT / "requirements" / requirements).read_bytes()).hexdigest()[:12]


if __name__ == "__main__":
    try:
        for get in (python_base, servers_base, wheels, site, mongosh):
            get()
    except CommandFailedError as problem:
        sys.exit(str(problem))
