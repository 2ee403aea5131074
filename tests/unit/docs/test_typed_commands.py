"""Commands of README and guide, as printed: each is accepted by the command line, and files that it names exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.unit.cli.test_examples import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[3]
PAGES = ("README.md", "docs/guide.md", "examples/two-routers.yaml")
_BLOCK = re.compile(r"^```[a-z]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"(?:[A-Z][A-Z0-9_]*=\S* +)*(?:\.venv/bin/)?lcm\s")
_PLACEHOLDER = re.compile(r"<[^>]*>")
_ASSIGNMENT = re.compile(r"[A-Z][A-Z0-9_]*=")
_OPERATORS = ("|", "&&", ";", ">", "&")


def typed_lines(page: str) -> Iterator[str]:
    """Lines that a reader types: in blocks after `$` or with the program first, continued lines joined."""
    text = (ROOT / page).read_text()
    blocks = _BLOCK.findall(text) if page.endswith(".md") else [re.sub(r"^#\s*", "", text, flags=re.MULTILINE)]
    for block in blocks:
        for line in block.replace("\\\n", " ").splitlines():
            yield _PLACEHOLDER.sub("placeholder", line.strip().removeprefix("$ "))


def typed_commands(page: str) -> Iterator[list[str]]:
    """The words after `lcm` of each command; what a shell adds around them is left out."""
    for line in typed_lines(page):
        if not _COMMAND.match(line):
            continue
        words: list[list[str]] = [[]]
        for word in shlex.split(line, comments=True):
            if word in _OPERATORS:
                words.append([])
            elif words[-1] or not _ASSIGNMENT.match(word):
                words[-1].append(word)
        yield from (each[1:] for each in words if each and each[0].rpartition("/")[2] == "lcm")


FOUND = [(page, words) for page in PAGES for words in typed_commands(page)]


def test_the_commands_are_found() -> None:
    pages = [page for page, _ in FOUND]
    assert pages.count("README.md") >= 9
    assert pages.count("docs/guide.md") >= 30
    assert pages.count("examples/two-routers.yaml") == 2


@pytest.mark.parametrize(("page", "words"), FOUND, ids=[f"{page}: {' '.join(words)}" for page, words in FOUND])
def test_a_documented_command_is_accepted(page: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    if not words or words[0] in ("-h", "--help", "--version"):
        return
    path = next((" ".join(words[:end]) for end in (3, 2, 1) if " ".join(words[:end]) in COMMANDS), None)
    assert path is not None, f"there is no command lcm {' '.join(words[:2])}"
    with COMMANDS[path].make_context(path, words[len(path.split()) :]) as context:
        assert path in str(context.command_path)
    for word in words:
        if word.startswith("examples/"):
            assert (ROOT / word).is_file(), f"{page} names {word}, which does not exist"
        if word.startswith("examples."):
            assert (ROOT / (word.partition(":")[0].replace(".", "/") + ".py")).is_file()
