"""Formats tables and texts as Markdown."""

import re
from collections.abc import Iterable, Sequence

WRITTEN_BY = "<!-- Written from the code by `make reference`: do not edit. -->"

_BOLD = re.compile(r"\[bold\](.*?)\[/bold\]")
_DIM = re.compile(r"\[/?dim\]")


def format_page(title: str, *parts: str) -> str:
    return "\n\n".join([WRITTEN_BY, f"# {title}", *(part for part in parts if part)]) + "\n"


def format_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def format_code(text: str) -> str:
    return f"`{text}`"


def strip_styles(text: str) -> str:
    """Removes the terminal styles of a help text."""
    return _DIM.sub("", _BOLD.sub(r"`\1`", text)).replace("\\[", "[")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").strip()
