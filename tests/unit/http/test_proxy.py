"""Which proxy the environment names for a URL."""

from __future__ import annotations

import pytest

from lcm.http.proxy import proxy_from_environment


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_without_an_environment_there_is_none() -> None:
    assert proxy_from_environment("https://id.example/keys") is None


@pytest.mark.parametrize("value", ["http://user:pw@proxy.example:3128", "user:pw@proxy.example:3128"])
def test_a_proxy_with_an_account(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", value)
    found = proxy_from_environment("https://id.example/keys")
    assert found is not None
    assert (found.host, found.port) == ("proxy.example", 3128)
    assert b"Proxy-Authorization: Basic dXNlcjpwdw==\r\n" in found.connect_request("id.example", 443)
    assert proxy_from_environment("http://id.example/keys") is None


def test_hosts_that_need_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "localhost,.example")
    assert proxy_from_environment("https://id.example/keys") is None
    assert proxy_from_environment("https://id.test/keys") is not None
