"""The one printer of lists and single things: a table or facts for a person, JSON for a program."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from runnel.cli.render.text import (
    Cell,
    print_styled,
    print_table,
    to_compact_json,
    to_pretty_json,
)
from runnel.core.values import Json
from runnel.views import build_document

T = TypeVar("T")


def print_list(
    items: Sequence[T],
    headers: Sequence[str],
    build_row: Callable[[T], Sequence[Cell]],
    *,
    as_json: bool,
    empty: str = "",
    limit: int | None = None,
    order: str = "first",
    to_json: Callable[[T], Json] = build_document,
) -> None:
    """Prints one JSON object per line, or a table; without items, the sentence `empty`.

    As many items as `limit` mean that there may be more: then a last line says so.
    """
    if as_json:
        print_json_lines(items, to_json)
    elif not items and empty:
        print(empty)
    else:
        print_table(headers, [build_row(item) for item in items])
        if len(items) == limit:
            print(f"(the {order} {limit}; --limit shows more)")


def print_json_lines(items: Iterable[T], to_json: Callable[[T], Json] = build_document) -> None:
    for item in items:
        print(to_compact_json(to_json(item)))


def print_facts(
    title: Sequence[Cell], facts: Iterable[tuple[str, str]], *, name_width: int = 10
) -> None:
    """Prints a title, and below it each fact that has a text."""
    print_styled(title)
    for name, text in facts:
        if text:
            print_styled([Cell(f"  {name:<{name_width}}", "dim"), Cell(text)])


def print_text_section(title: str, text: str | None) -> None:
    """Prints a text below a title; nothing if there is no text."""
    if text:
        print_styled([Cell(f"\n{title}", "dim")])
        print(text.rstrip())


def print_value_section(title: str, value: Json) -> None:
    """Prints a value as JSON below a title; nothing if it is None."""
    if value is not None:
        print_text_section(title, to_pretty_json(value))
