"""Contexts are readable by their owner only, and a token is sent only to its own address."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lcm.cli.commands.auth import context_name_from_url
from lcm.cli.config import context_store
from lcm.cli.errors import CommandError
from lcm.cli.runtime.target import DEFAULT_URL, resolve_target

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("LCM_URL", raising=False)
    monkeypatch.delenv("LCM_TOKEN", raising=False)
    return tmp_path


def test_no_contexts_at_first() -> None:
    assert context_store.load() == context_store.ContextFile()
    assert context_store.current() is None


def test_what_is_saved_is_found_again_and_only_by_its_owner(home: Path) -> None:
    context_store.save("local", "http://127.0.0.1:8080", "secret-token")
    path = home / "lcm" / "contexts.json"
    assert context_store.path() == path
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o077 == 0
    found = context_store.current()
    assert found == context_store.Context("local", "http://127.0.0.1:8080", "secret-token")
    assert "secret-token" not in repr(found)
    assert list(path.parent.iterdir()) == [path], "no draft is left"


def test_the_first_is_current_and_others_only_if_asked_for() -> None:
    context_store.save("one", "http://one", None, make_current=False)
    context_store.save("two", "http://two", "t", make_current=False)
    assert context_store.load().current == "one"
    context_store.use("two")
    assert context_store.load().current == "two"
    context_store.remove("two")
    assert context_store.load() == context_store.ContextFile({"one": context_store.Context("one", "http://one")}, None)


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o666])
def test_a_file_that_others_can_read_is_refused(mode: int) -> None:
    context_store.save("local", "http://x", "t")
    context_store.path().chmod(mode)
    with pytest.raises(context_store.ContextStoreError, match="chmod 600"):
        context_store.load()
    with pytest.raises(CommandError, match="chmod 600"):
        resolve_target()


@pytest.mark.parametrize("content", ["", "[]", "{", '{"contexts": {"a": 5}}', '{"contexts": []}'])
def test_a_damaged_file_is_reported(content: str) -> None:
    context_store.save("local", "http://x", "t")
    context_store.path().write_text(content)
    with pytest.raises(context_store.ContextStoreError, match="lcm login"):
        context_store.load()


@pytest.mark.parametrize("name", ["", "../up", "a b", "-x", "x" * 64])
def test_invalid_names(name: str) -> None:
    with pytest.raises(context_store.ContextStoreError, match="cannot be called"):
        context_store.save(name, "http://x", None)


def test_an_unwritable_folder_is_reported(home: Path) -> None:
    (home / "lcm").write_text("a file where the folder should be")
    with pytest.raises(context_store.ContextStoreError, match="cannot be"):
        context_store.save("local", "http://x", None)


def test_flags_override_the_environment_and_the_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (resolve_target().url, resolve_target().token, resolve_target().source) == (DEFAULT_URL, None, "default")
    context_store.save("far", "http://far", "far-token")
    assert (resolve_target().url, resolve_target().token, resolve_target().source) == (
        "http://far",
        "far-token",
        "context far",
    )
    monkeypatch.setenv("LCM_URL", "http://env")
    monkeypatch.setenv("LCM_TOKEN", "env-token")
    assert (resolve_target().url, resolve_target().token) == ("http://env", "env-token")
    file = tmp_path / "token"
    file.write_text("file-token\n")
    target = resolve_target("http://flag", str(file))
    assert (target.url, target.token) == ("http://flag", "file-token")
    assert "file-token" not in repr(target)


def test_a_token_is_never_shown_to_another_address(monkeypatch: pytest.MonkeyPatch) -> None:
    context_store.save("far", "http://far", "far-token")
    assert resolve_target("http://elsewhere").token is None
    assert resolve_target("http://FAR/").token == "far-token"
    monkeypatch.setenv("LCM_URL", "http://env")
    assert resolve_target().token is None
    monkeypatch.setenv("LCM_TOKEN", "env-token")
    assert resolve_target("http://elsewhere").token is None
    monkeypatch.delenv("LCM_URL")
    assert resolve_target("http://elsewhere").token == "env-token", "it applies to any server"


def test_an_unusable_token_file(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be read"):
        resolve_target("http://x", str(tmp_path / "missing"))
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(CommandError, match="is empty"):
        resolve_target("http://x", str(tmp_path / "empty"))


def test_names_from_addresses() -> None:
    assert context_name_from_url("http://127.0.0.1:8080") == "local"
    assert context_name_from_url("https://lcm.example.org/x") == "lcm.example.org"
    with pytest.raises(CommandError, match="must begin with"):
        context_name_from_url("lcm.example.org")


def test_the_file_is_plain_json() -> None:
    context_store.save("local", "http://x", "t")
    assert json.loads(context_store.path().read_text()) == {
        "current": "local",
        "contexts": {"local": {"url": "http://x", "token": "t"}},
    }
