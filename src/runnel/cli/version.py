"""`runnel version`"""

from runnel import __version__
from runnel.cli import exits


def version() -> int:
    """Print the version."""
    print(f"runnel {__version__}")
    return exits.OK
