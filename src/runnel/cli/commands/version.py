"""`runnel version`"""

from runnel import __version__


def version() -> None:
    """Print the version."""
    print(f"runnel {__version__}")
