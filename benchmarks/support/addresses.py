"""Addresses of CML servers, in a module of its own because poller processes import it."""

from __future__ import annotations


def loopback_url(port: int, address: str) -> str:
    """The one CML server under a loopback address of each worker: so it has connections and sessions of its own."""
    _, second, third, fourth = address.split(".")
    return f"https://127.{int(second) % 250 + 1}.{third}.{fourth}:{port}"
