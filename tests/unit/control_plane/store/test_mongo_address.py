"""What the address of a MongoDB store says: its private CA and its database."""

from __future__ import annotations

from pathlib import Path

import pytest

from lcm.control_plane.store.mongo_address import database_name, tls_options

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
    assert tls_options(url, CA) == ({"tlsCAFile": "/ca.pem"} if applies else {})
    assert tls_options(url, None) == {}


@pytest.mark.parametrize(
    ("url", "database"),
    [
        ("mongodb://a:27017,b:27017/?replicaSet=rs0", "lcm"),
        ("mongodb://a:27017", "lcm"),
        ("mongodb://user:p%40ss@a:27017,b:27017/second?replicaSet=rs0", "second"),
        ("mongodb+srv://cluster.example/third", "third"),
    ],
)
def test_two_installations_on_one_replica_set_have_a_database_each(url: str, database: str) -> None:
    assert database_name(url) == database
