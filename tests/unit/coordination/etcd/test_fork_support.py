"""Processes that a controller starts: between fork and exec, no code of gRPC may run in them."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import os, sys
assert "grpc" not in sys.modules
import lcm.coordination.etcd
assert "grpc" in sys.modules
print(os.environ["GRPC_ENABLE_FORK_SUPPORT"])
"""


def test_grpc_installs_no_handlers_of_fork() -> None:
    """It reads the variable when it is imported, so LCM sets it before."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, env={})
    assert done.stdout == "0\n"
