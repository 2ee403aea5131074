"""Commands of virlutils, one after the other in one process; run by the interpreter that has virlutils.

Argument: the commands as JSON. The last line that it prints is what each of them printed, as one JSON object.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
import time
import warnings


def main(commands: list[list[str]]) -> None:
    warnings.simplefilter("ignore")
    sleep = time.sleep

    def sleep_shortly(seconds: float) -> None:
        sleep(min(seconds, 0.1))

    vars(time)["sleep"] = sleep_shortly  # virlutils looks every five seconds, and the simulator is faster
    virl = importlib.import_module("virl.cli.main").virl  # it has an environment of its own

    printed = {}
    for command in commands:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            try:
                virl(command, standalone_mode=False)
            except BaseException:
                sys.stderr.write(f"cml {' '.join(command)}: {output.getvalue()}\n")
                raise
        printed[" ".join(command)] = output.getvalue()
    print(json.dumps(printed))


main(json.loads(sys.argv[1]))
