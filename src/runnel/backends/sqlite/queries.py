"""The statements of queries.sql by name: `-- name: purpose`, then one statement up to its `;`."""

import re
from pathlib import Path

_STATEMENT = re.compile(r"^-- (\w+): [^\n]+\n(.+?);$", re.MULTILINE | re.DOTALL)


def _load() -> dict[str, str]:
    text = Path(__file__).with_name("queries.sql").read_text(encoding="utf-8")
    return {match[1]: match[2] for match in _STATEMENT.finditer(text)}


def schema() -> list[str]:
    text = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")
    bare = re.sub(r"^--[^\n]*\n", "", text, flags=re.MULTILINE)
    return [statement for statement in bare.split(";") if statement.strip()]


SQL = _load()
