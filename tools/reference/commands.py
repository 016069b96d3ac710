"""docs/reference/commands.md: every command, its arguments and options, as `--help` has them."""

from collections.abc import Iterator
from typing import Any

import typer

from runnel.cli.main import app
from tools.reference.markdown import format_code, format_page, format_table, strip_styles

INTRODUCTION = """\
`runnel COMMAND --help` prints the same in a terminal. An `ID` is an execution id, its first
characters, or `@last`.

Exit codes: 0 completed, 1 failed or cancelled, 2 bad input, 130 interrupted (143 by SIGTERM)."""


def build_commands_page() -> str:
    # Any: the classes of Typer's commands are not part of its interface.
    root: Any = typer.main.get_command(app)
    panels: dict[str, dict[str, Any]] = {}
    for name, command in root.commands.items():
        panels.setdefault(command.rich_help_panel, {})[name] = command
    return format_page(
        "Commands", INTRODUCTION, *(_format_panel(*panel) for panel in panels.items())
    )


def _format_panel(title: str, commands: dict[str, Any]) -> str:
    parts = [part for name, command in commands.items() for part in _iter_parts(name, command)]
    return "\n\n".join([f"## {title}", *parts])


def _iter_parts(name: str, command: Any) -> Iterator[str]:
    subcommands = getattr(command, "commands", {})
    if subcommands:
        yield from (f"### `runnel {name}`", strip_styles(command.help))
    for subname, subcommand in subcommands.items():
        yield from _describe_command(f"{name} {subname}", subcommand)
    if not subcommands:
        yield from _describe_command(name, command)


def _describe_command(name: str, command: Any) -> Iterator[str]:
    parameters = command.params
    arguments = [item for item in parameters if item.param_type_name == "argument"]
    options = [item for item in parameters if item.param_type_name == "option" and not item.hidden]
    words = [
        name,
        *(argument.metavar for argument in arguments),
        *(["[OPTIONS]"] if options else []),
    ]
    yield f"### `runnel {' '.join(words)}`"
    yield strip_styles(command.help)
    if command.params:
        rows = [*map(_build_argument_row, arguments), *map(_build_option_row, options)]
        yield format_table(("argument or option", "meaning"), rows)
    if command.epilog:
        yield strip_styles(command.epilog).replace("Example:  ", "Example: ")


def _build_argument_row(argument: Any) -> tuple[str, str]:
    return format_code(argument.metavar), strip_styles(argument.help)


def _build_option_row(option: Any) -> tuple[str, str]:
    names = [*option.opts, *option.secondary_opts]
    value = "" if option.is_flag else f" {option.metavar or option.type.name.upper().split()[0]}"
    notes = []
    if option.required:
        notes.append("required")
    if option.show_default and not option.is_flag and option.default not in (None, ""):
        notes.append(f"default: {option.default}")
    said = f" [{'; '.join(notes)}]" if notes else ""
    return ", ".join(format_code(name + value) for name in names), strip_styles(option.help) + said
