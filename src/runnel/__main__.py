"""The program `runnel`, also as `python -m runnel`.

Its imports take a tenth of a second. A Ctrl-C during that time exits without a traceback.
"""

import sys

try:
    from runnel.cli.main import main
except KeyboardInterrupt:
    sys.exit(130)

__all__ = ["main"]

if __name__ == "__main__":
    main()
