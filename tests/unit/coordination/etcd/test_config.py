"""Settings of the etcd adapter, and how it puts keys into ranges."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lcm.coordination.etcd import EtcdConfig, EtcdCoordination
from lcm.coordination.etcd.messages import key_to_bytes, key_to_text, prefix_range


@pytest.mark.parametrize(
    ("endpoint", "text", "tls"),
    [
        ("127.0.0.1:2379", "127.0.0.1:2379", False),
        ("etcd.example.org:2379", "etcd.example.org:2379", False),
        ("[2001:db8::1]:2379", "[2001:db8::1]:2379", False),
        ("http://etcd:2379", "etcd:2379", False),
        ("https://etcd:2379/", "etcd:2379", True),
        (" etcd:2379 ", "etcd:2379", False),
    ],
)
def test_endpoint_formats(endpoint: str, text: str, tls: bool) -> None:
    (address,) = EtcdConfig((endpoint,)).addresses
    assert (address.text, address.tls) == (text, tls)


def test_a_ca_selects_tls_unless_the_endpoint_has_a_scheme() -> None:
    config = EtcdConfig(("a:1", "http://b:1", "https://c:1"), ca_file=Path("ca.pem"))
    assert [address.tls for address in config.addresses] == [True, False, True]


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "etcd",
        "etcd:",
        ":2379",
        "etcd:abc",
        "etcd:0",
        "etcd:65536",
        "2001:db8::1:2379",
        "[etcd]:1",
        "a/b:1",
        "ftp://a:1",
    ],
)
def test_a_wrong_endpoint_is_named(endpoint: str) -> None:
    with pytest.raises(ValueError, match="etcd endpoint") as caught:
        EtcdConfig((endpoint,))
    assert repr(endpoint) in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"endpoints": ()}, "at least one"),
        ({"endpoints": ("a:1", "a:1")}, "named twice"),
        ({"cert_file": Path("c")}, "both the certificate and the key"),
        ({"key_file": Path("c")}, "both the certificate and the key"),
        ({"user": "u"}, "both user and password"),
        ({"password": "p"}, "both user and password"),
        ({"call_timeout": 0.0}, "above 0"),
        ({"liveness_interval": -1.0}, "above 0"),
    ],
)
def test_settings_that_do_not_fit_are_mistakes(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EtcdConfig(**{"endpoints": ("a:1",)} | settings)


def test_the_password_does_not_show() -> None:
    assert "hidden" not in repr(EtcdConfig(("a:1",), user="u", password="hidden"))


def test_the_bound_is_stated() -> None:
    assert EtcdConfig(("a:1",)).max_call_seconds == 6.0


def test_the_description_names_all_endpoints() -> None:
    assert EtcdCoordination(EtcdConfig(("a:1", "https://b:2"))).description == "etcd at a:1, b:2"


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [("/p/", (b"/p/", b"/p0")), ("", (b"\0", b"\0")), ("é", (b"\xc3\xa9", b"\xc3\xaa")), ("\udcff", (b"\xff", b"\0"))],
)
def test_a_prefix_is_a_range(prefix: str, expected: tuple[bytes, bytes]) -> None:
    assert prefix_range(prefix) == expected


def test_a_key_that_is_not_utf8_survives() -> None:
    assert key_to_bytes(key_to_text(b"/a\xff\xfe")) == b"/a\xff\xfe"


def test_the_package_itself_loads_no_grpc() -> None:
    code = "import sys, lcm.coordination, lcm.coordination.memory.client; sys.exit('grpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=180, check=False).returncode == 0
