"""A process that a test suspended does nothing more, however busy the host is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.support.run.suspension import suspend, thread_states

BUSY = """
import hashlib, threading
data = bytes(1 << 20)
def work():
    while True:
        hashlib.sha256(data)  # without the interpreter's lock: the threads run side by side
for _ in range(8):
    threading.Thread(target=work, daemon=True).start()
print("started", flush=True)
threading.Event().wait()
"""


def test_no_thread_runs_after_it() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
            for _ in range(20):
                suspend(process.pid)
                states = thread_states(process.pid)
                assert states == ["T"] * 9
                os.kill(process.pid, signal.SIGCONT)
        finally:
            process.kill()
