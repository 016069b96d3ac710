"""Loads SQL statements from files, either by name or as a sequence."""

import re
from pathlib import Path

# `text + LAST_CHARACTER` is the upper end of the range of all strings that begin with `text`.
LAST_CHARACTER = "\U0010ffff"

_NAMED_STATEMENT = re.compile(r"^-- (\w+): [^\n]+\n(.+?);$", re.MULTILINE | re.DOTALL)


def load_named_statements(path: Path) -> dict[str, str]:
    """Returns the statements of a file by name.

    In the file, each statement follows a line `-- name: purpose` and ends with `;` at a line end.
    """
    text = path.read_text(encoding="utf-8")
    return {match[1]: match[2] for match in _NAMED_STATEMENT.finditer(text)}


def load_statements(path: Path) -> list[str]:
    bare = re.sub(r"^--[^\n]*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [statement for statement in bare.split(";") if statement.strip()]
