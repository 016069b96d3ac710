"""The command `python -m programs <module>` measures; `python -m programs <module> worker` works.

The module keeps its own name this way, and peers find their tasks by that name.
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
    except Exception:  # noqa: BLE001  # the boundary: the last line reports any error
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # output of a library at exit would follow the last line
