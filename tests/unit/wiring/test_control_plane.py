"""The private CA of MongoDB."""

from __future__ import annotations

from pathlib import Path

import pytest

from lcm.wiring.control_plane import mongo_tls_options

CA = Path("/ca.pem")


@pytest.mark.parametrize(
    ("url", "applies"),
    [
        ("mongodb://m1,m2/?replicaSet=lcm&tls=true", True),
        ("mongodb://user:p%40ss@m1/lcm?TLS=True", True),
        ("mongodb://m1/?ssl=true", True),
        ("mongodb+srv://cluster.example.com/", True),
        ("mongodb+srv://cluster.example.com/?tls=false", False),
        ("mongodb://m1/?replicaSet=lcm", False),
        ("mongodb://m1/?tls=true&tlsCAFile=/other.pem", False),
    ],
)
def test_the_ca_applies_where_tls_is_used_and_no_other_is_named(url: str, applies: bool) -> None:
    assert mongo_tls_options(url, CA) == ({"tlsCAFile": "/ca.pem"} if applies else {})
    assert mongo_tls_options(url, None) == {}
