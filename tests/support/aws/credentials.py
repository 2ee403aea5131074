"""Credentials for servers that do not check them."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

REGION = "eu-central-1"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}


@contextmanager
def dummy_credentials() -> Iterator[None]:
    """Hide the AWS settings of this computer, and allow credentials only from loopback."""
    before = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    for name in before:
        del os.environ[name]
    os.environ.update(CREDENTIALS)
    try:
        yield
    finally:
        for name in CREDENTIALS:
            os.environ.pop(name, None)
        os.environ.update(before)
