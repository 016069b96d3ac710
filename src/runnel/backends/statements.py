"""SQL in files: statements by name, or one after the other."""

import re
from pathlib import Path

_STATEMENT = re.compile(r"^-- (\w+): [^\n]+\n(.+?);$", re.MULTILINE | re.DOTALL)


def named_statements(path: Path) -> dict[str, str]:
    """`-- name: purpose`, then one statement up to its `;` at the end of a line."""
    text = path.read_text(encoding="utf-8")
    return {match[1]: match[2] for match in _STATEMENT.finditer(text)}


def plain_statements(path: Path) -> list[str]:
    bare = re.sub(r"^--[^\n]*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [statement for statement in bare.split(";") if statement.strip()]
