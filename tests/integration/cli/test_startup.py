"""A command imports only what it needs, so that `lcm --help` and lists are fast."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from lcm.cli.lazy_group import LAZY_COMMANDS

HEAVY = ("httpx", "pydantic", "rich", "yaml", "asyncio", "structlog", "prometheus_client", "fastapi", "grpc", "boto3")
SAY = "import sys; print(','.join(sorted(name for name in sys.modules if '.' not in name)), file=sys.stderr)"


def imported_by(*arguments: str) -> tuple[set[str], str, int]:
    """The modules that a command imported, its output, and its exit code."""
    code = f"import atexit; atexit.register(lambda: exec({SAY!r})); from lcm.cli.main import main; main()"
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=env, capture_output=True, text=True, timeout=180, check=False
    )
    return set(done.stderr.splitlines()[-1].split(",")), done.stdout, done.returncode


@pytest.mark.parametrize("arguments", [("--help",), ("workers", "--help"), ("workers", "list", "--help")])
def test_help_imports_nothing_heavy(arguments: tuple[str, ...]) -> None:
    modules, text, code = imported_by(*arguments)
    assert code == 0
    assert text.startswith("Usage: lcm")
    typers_own = set() if arguments == ("--help",) else {"pydantic"}  # Typer inspects the types of options with it
    assert not modules & set(HEAVY) - typers_own


@pytest.mark.parametrize("noun", LAZY_COMMANDS)
def test_every_noun_has_help(noun: str) -> None:
    _, text, code = imported_by(noun, "--help")
    assert code == 0
    assert text.startswith(f"Usage: lcm {noun}")


def test_a_shell_completes_nouns_verbs_and_options() -> None:
    for words, expected in (
        ("lcm wor", "workers"),
        ("lcm workers ter", "terminate"),
        ("lcm workers stop --dr", "--dry-run"),
    ):
        env = {
            **os.environ,
            "_LCM_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }
        command = [sys.executable, "-c", "from lcm.cli.main import main; main()"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=180, check=False)
        assert expected in done.stdout.split(), (words, done.stdout, done.stderr)


def test_the_completion_script() -> None:
    for shell in ("bash", "zsh", "fish"):
        _, text, code = imported_by("completion", shell)
        assert code == 0
        assert "_LCM_COMPLETE" in text
