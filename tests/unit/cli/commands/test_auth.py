"""`lcm login` and `lcm logout`: what is said before anything is sent, and which context is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import typer

from lcm.cli.commands import auth
from lcm.cli.config import context_store
from lcm.core import clock

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://lcm.example.org", True),
        ("HTTP://192.0.2.1:8080", True),
        ("https://lcm.example.org", False),
        ("http://127.0.0.1:8080", False),
        ("http://localhost:8080", False),
    ],
)
def test_a_token_in_plain_text_is_warned_about_before_it_is_sent(
    url: str, warned: bool, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    token = home / "token"
    token.write_text("a-token")
    said: list[str] = []
    monkeypatch.setattr(auth, "_sign_in_with_token", lambda *_: said.append(capsys.readouterr().err))
    auth.login(url, token_file=str(token))
    assert ["without encryption; use https://" in each for each in said] == [warned]


def test_a_second_control_plane_on_the_same_host_takes_no_context_away(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name would be the same, and the token that was saved there would be lost."""
    (home / "token").write_text("a-token")
    contexts: list[str] = []

    def sign_in(save_as: auth._Destination, token: str) -> None:
        context_store.save(save_as.context, save_as.url, token)
        contexts.append(save_as.context)

    monkeypatch.setattr(auth, "_sign_in_with_token", sign_in)
    for url in ("http://127.0.0.1:8080", "http://localhost:9090", "http://127.0.0.1:8080/", "http://localhost:9090"):
        auth.login(url, token_file=str(home / "token"))
    assert contexts == ["local", "local-9090", "local", "local-9090"]
    for url in ("https://lcm.example.org:8443", "https://lcm.example.org"):
        auth.login(url, token_file=str(home / "token"))
    assert contexts[4:] == ["lcm.example.org", "lcm.example.org-443"]


def test_logging_out_means_the_current_context_or_the_one_that_is_named() -> None:
    context_store.save("one", "http://one", "t-1")
    context_store.save("two", "http://two", "t-2", ends_at=clock.after(60))
    saved = context_store.load()
    assert auth._signed_in_context(saved, None).name == "two"
    assert auth._signed_in_context(saved, "one").name == "one"
    assert auth._signed_in_context(saved, "http://one/").name == "one"
    context_store.forget_token("two")
    assert context_store.load().contexts["two"] == context_store.Context("two", "http://two")
    for which in (None, "two", "http://three"):
        with pytest.raises(typer.Exit):
            auth._signed_in_context(context_store.load(), which)


def test_the_end_of_a_session_is_saved_with_it_and_older_files_are_read() -> None:
    ends_at = clock.after(3600)
    context_store.save("school", "http://school", "lcm-session-x", ends_at=ends_at)
    assert context_store.load().contexts["school"].ends_at == ends_at
    context_store.path().write_text('{"current": null, "contexts": {"old": {"url": "http://old", "token": "t"}}}')
    assert context_store.load().contexts["old"] == context_store.Context("old", "http://old", "t")


@pytest.mark.parametrize("url", ["https://lcm.example.org:99999", "https://lcm.example.org:x", "https://[lcm"])
def test_an_address_that_cannot_be_read_is_refused_in_words(
    home: Path, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    (home / "token").write_text("a-token")
    context_store.save("lcm.example.org", "https://lcm.example.org", "t-1")
    with pytest.raises(typer.Exit):
        auth.login(url, token_file=str(home / "token"))
    assert url in capsys.readouterr().err
