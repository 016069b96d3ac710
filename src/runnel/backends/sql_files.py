"""SQL in files: statements by name, or one after the other."""

import re
from pathlib import Path

# A text and this character end the range of all texts that begin with that text.
LAST_CHARACTER = "\U0010ffff"

_NAMED_STATEMENT = re.compile(r"^-- (\w+): [^\n]+\n(.+?);$", re.MULTILINE | re.DOTALL)


def load_named_statements(path: Path) -> dict[str, str]:
    """Reads `-- name: purpose`, then one statement up to its `;` at the end of a line."""
    text = path.read_text(encoding="utf-8")
    return {match[1]: match[2] for match in _NAMED_STATEMENT.finditer(text)}


def load_statements(path: Path) -> list[str]:
    bare = re.sub(r"^--[^\n]*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [statement for statement in bare.split(";") if statement.strip()]
