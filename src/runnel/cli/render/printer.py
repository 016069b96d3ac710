"""Prints lists and single objects: tables and facts for a person, JSON for a program."""

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
    """Prints items as a table, or with `as_json` as one JSON object per line.

    Prints the sentence `empty` if there are no items. If the number of items equals `limit`, a last
    line says that there may be more.
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
    """Prints a title, and below it the name and text of each fact; skips facts without a text."""
    print_styled(title)
    for name, text in facts:
        if text:
            print_styled([Cell(f"  {name:<{name_width}}", "dim"), Cell(text)])


def print_text_section(title: str, text: str | None) -> None:
    """Prints a text below a title; prints nothing if there is no text."""
    if text:
        print_styled([Cell(f"\n{title}", "dim")])
        print(text.rstrip())


def print_value_section(title: str, value: Json) -> None:
    """Prints a value as JSON below a title; prints nothing if the value is None."""
    if value is not None:
        print_text_section(title, to_pretty_json(value))
