"""Parses the path of a Python file with a workflow: `flow.py`, or `flow.py:name` to choose one.

This module is apart from `python_files`, which imports the decorators: a YAML file needs none.
"""

from pathlib import Path
from typing import NamedTuple

PYTHON_SUFFIX = ".py"


class PythonFile(NamedTuple):
    """A Python file. `name` is the workflow to load from it; None if no name was given.

    `folder` must be on `sys.path` to import `module`. For a file in a package, `folder` is the
    folder that contains the package.
    """

    path: Path
    name: str | None
    folder: Path
    module: str


def parse_python_path(text: str) -> PythonFile | None:
    """Parses `flow.py` or `flow.py:name`; returns None if the file is not a Python file."""
    file, separator, name = text.rpartition(":")
    if not separator or not file.endswith(PYTHON_SUFFIX):
        file, name = text, ""
    if not file.endswith(PYTHON_SUFFIX):
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
        return False  # an unreadable folder is reported when the file is opened
