"""Which file, and which workflow in it, `flow.py` and `flow.py:name` name; nothing is imported."""

from pathlib import Path
from typing import NamedTuple

SUFFIX = ".py"


class PythonFile(NamedTuple):
    """`folder` is where `module` is imported from: that of its package, if it is in one."""

    path: Path
    name: str | None
    folder: Path
    module: str


def python_file(text: str) -> PythonFile | None:
    """None for a path that is of another kind of file."""
    file, separator, name = text.rpartition(":")
    if not separator or not file.endswith(SUFFIX):
        file, name = text, ""
    if not file.endswith(SUFFIX):
        return None
    path = Path(file)
    parts, folder = [path.stem], path.resolve().parent
    while _is_package(folder):
        parts.append(folder.name)
        folder = folder.parent
    return PythonFile(path, name or None, folder, ".".join(reversed(parts)))


def _is_package(folder: Path) -> bool:
    try:
        return (folder / "__init__.py").is_file()
    except OSError:
        return False  # it can't be read: told when it is tried
