"""Free memory is given back to the system."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own: what else is on the heap would decide how much can be given back.
_PROGRAM = """
from pathlib import Path
from lcm.cml.heap import release_free_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

blocks, pins = [], []
for _ in range(1000):
    blocks.append(bytearray(b"x") * 65536)
    pins.append(bytearray(b"y") * 2048)
del blocks
before = resident()
release_free_memory()
print(before - resident())
"""


def test_free_blocks_below_one_that_is_used_are_given_back() -> None:
    result = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert int(result.stdout) > 32 * 2**20, "of 64 MiB that were freed"
