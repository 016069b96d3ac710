"""`python -m programs <module>` submits and measures, with the further word `worker` it works.

Started here, a module keeps its name: peers look their tasks up by it.
"""

import importlib
import os
import sys
import traceback


def main(module: str, duty: str = "measure") -> None:
    program = importlib.import_module(f".{module}", __package__)
    getattr(program, duty)()


if __name__ == "__main__":
    code = 0
    try:
        main(*sys.argv[1:])
    except Exception:  # noqa: BLE001  # the boundary: whatever it was, it is told on the last line
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # what a library says while the interpreter ends would hide that line
