"""docs/reference/commands.md: every command, its arguments and options, as `--help` has them."""

from collections.abc import Iterator
from typing import Any

import typer

from runnel.cli.main import app
from tools.reference.markdown import code, page, plain, table

INTRODUCTION = """\
`runnel COMMAND --help` prints the same in a terminal. An `ID` is an execution id, its first
characters, or `@last`.

Exit codes: 0 completed, 1 failed or cancelled, 2 bad input, 130 interrupted (143 by SIGTERM)."""


def commands_page() -> str:
    # Any: the classes of Typer's commands are not part of its interface.
    root: Any = typer.main.get_command(app)
    panels: dict[str, dict[str, Any]] = {}
    for name, command in root.commands.items():
        panels.setdefault(command.rich_help_panel, {})[name] = command
    return page("Commands", INTRODUCTION, *(_panel(*each) for each in panels.items()))


def _panel(title: str, commands: dict[str, Any]) -> str:
    parts = [part for name, command in commands.items() for part in _parts(name, command)]
    return "\n\n".join([f"## {title}", *parts])


def _parts(name: str, command: Any) -> Iterator[str]:
    subcommands = getattr(command, "commands", {})
    if subcommands:
        yield from (f"### `runnel {name}`", plain(command.help))
    for each, sub in subcommands.items():
        yield from _command(f"{name} {each}", sub)
    if not subcommands:
        yield from _command(name, command)


def _command(name: str, command: Any) -> Iterator[str]:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [
        each for each in command.params if each.param_type_name == "option" and not each.hidden
    ]
    words = [name, *(each.metavar for each in arguments), *(["[OPTIONS]"] if options else [])]
    yield f"### `runnel {' '.join(words)}`"
    yield plain(command.help)
    if command.params:
        rows = [_argument(each) for each in arguments] + [_option(each) for each in options]
        yield table(("argument or option", "meaning"), rows)
    if command.epilog:
        yield plain(command.epilog).replace("Example:  ", "Example: ")


def _argument(argument: Any) -> tuple[str, str]:
    return code(argument.metavar), plain(argument.help)


def _option(option: Any) -> tuple[str, str]:
    names = [*option.opts, *option.secondary_opts]
    value = "" if option.is_flag else f" {option.metavar or option.type.name.upper().split()[0]}"
    notes = []
    if option.required:
        notes.append("required")
    if option.show_default and not option.is_flag and option.default not in (None, ""):
        notes.append(f"default: {option.default}")
    said = f" [{'; '.join(notes)}]" if notes else ""
    return ", ".join(code(name + value) for name in names), plain(option.help) + said
