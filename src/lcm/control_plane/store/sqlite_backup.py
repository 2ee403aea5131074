"""The former path of `python -m lcm.control_plane.store.sqlite.backup`, for scripts that still use it."""

import runpy

if __name__ == "__main__":
    runpy.run_module("lcm.control_plane.store.sqlite.backup", run_name="__main__", alter_sys=True)
