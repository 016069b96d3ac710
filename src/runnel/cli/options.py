"""Options that several commands share, and the settings that they change.

A dataclass here is a group of options: a command takes it as one parameter (see `adapt_command`).
"""

import math
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec
import typer

from runnel.cli.render.text import RESERVED_LABEL_PREFIX
from runnel.core.message_text import quote_name
from runnel.core.workflow import PRIORITY_MAX
from runnel.errors import InputError, RunnelError
from runnel.settings import SettingsError, override_settings, read_settings
from runnel.settings.model import Settings
from runnel.settings.variables import VARIABLES

if TYPE_CHECKING:
    from runnel.client.protocol import Client

# Shell completion of execution ids and workflow names, from a data directory only.
#
# Completion sends no request to a server: the shell would wait for the response at every key press.
# Completion must not fail or print: on any error it offers nothing. A store is imported only when a
# shell asks for completions.

COMPLETIONS_MAX = 50


def complete_id(incomplete: str) -> list[str]:
    """Returns `@last` and the ids of recent executions that begin with the text, newest first."""
    return _complete_prefix(incomplete, _load_ids)


def complete_workflow(incomplete: str) -> list[str]:
    return _complete_prefix(incomplete, _load_workflow_names)


def _complete_prefix(
    incomplete: str, load: "Callable[[Client], Awaitable[Sequence[str]]]"
) -> list[str]:
    import asyncio

    from runnel.app.stores import open_store_session

    async def load_names() -> Sequence[str]:
        settings = configure(StoreLocation())
        if settings.is_remote:
            return ()
        async with open_store_session(settings) as session:
            return await load(session.client)

    with suppress(RunnelError):
        return [name for name in asyncio.run(load_names()) if name.startswith(incomplete)]
    return []


async def _load_ids(client: "Client") -> Sequence[str]:
    from runnel.ports.archive import ExecutionFilter

    page = await client.list_executions(ExecutionFilter(limit=COMPLETIONS_MAX))
    return ["@last", *(header.execution_id for header in page)]


async def _load_workflow_names(client: "Client") -> Sequence[str]:
    return [workflow.name for workflow in await client.library.list(limit=COMPLETIONS_MAX)]


WorkflowFile: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A workflow: YAML, JSON, or a Python file with a @workflow (flow.py, flow.py:name).",
        readable=False,
    ),
]
ExecutionIdArgument: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="An execution: its id, the first characters of the id, or @last.",
        autocompletion=complete_id,
    ),
]
OptionalExecutionId: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="[ID]",
        help="An execution: its id, the first characters of the id, or @last. Without an id, the "
        "filters choose the executions.",
        autocompletion=complete_id,
    ),
]
SkipConfirmation: TypeAlias = Annotated[
    bool, typer.Option("--yes", help="Skip the confirmation when several executions are chosen.")
]
Limit: TypeAlias = Annotated[
    int, typer.Option("--limit", min=1, help="The largest number of rows to print.")
]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON object per line, for programs.")
]
AsJsonResult: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print the execution as one JSON object at the end.")
]
Concurrency: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--concurrency",
        metavar="N",
        min=1,
        help="The number of nodes that may run at once. "
        "[dim]\\[default: $WORKER_CONCURRENCY or 4][/dim]",
    ),
]
Assignments: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="KEY=VALUE",
        help="Set one value of the input; repeatable: year=2026, user.name=Ada, tags:='[1, 2]'.",
    ),
]
InputFile: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--input-file",
        metavar="FILE",
        help="Read the input from a JSON or YAML file; - reads stdin.",
    ),
]
Labels: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--label", "-l", metavar="KEY=VALUE", help="Add a label to the execution; repeatable."
    ),
]
Priority: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=-PRIORITY_MAX,
        max=PRIORITY_MAX,
        help="The priority of the execution, from -100 to 100: in a queue, tasks with a higher "
        "number come first. [dim]\\[default: the priority of the workflow][/dim]",
    ),
]
WorkflowVersion: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--version",
        metavar="N",
        min=1,
        help="Run this version of the workflow instead of the newest.",
    ),
]
DataDir: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="The directory that stores executions. "
        "[dim]\\[default: $RUNNEL_DATA_DIR or .runnel][/dim]",
        readable=False,
    ),
]
RedisUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--redis-url",
        metavar="URL",
        help="The URL of the Redis server to use instead of a data directory. "
        "[dim]\\[default: $REDIS_URL, or $REDIS_HOST and so on][/dim]",
    ),
]
DefaultedRedisUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--redis-url",
        metavar="URL",
        help="The URL of the Redis server. "
        "[dim]\\[default: $REDIS_URL, or $REDIS_HOST and so on, or localhost][/dim]",
    ),
]
Server: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="The URL of the Runnel server to use over HTTP, with the token in $RUNNEL_TOKEN. "
        "[dim]\\[default: $RUNNEL_SERVER][/dim]",
    ),
]


def check_finite(value: float | None) -> float | None:
    """Returns the value; raises BadParameter for `nan` and `inf`, which Typer reads as numbers."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"expected a number, got '{value}'")
    return value


# The command line names at most one place that stores executions. Without such an option, the
# environment variables name the place.


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """The options that name a store: a data directory, a Redis server or a Runnel server."""

    data_dir: DataDir = None
    redis_url: RedisUrl = None
    server: Server = None


@dataclass(frozen=True, slots=True)
class DirectLocation(StoreLocation):
    """The location options of a command that needs the store itself and can't work over HTTP."""

    server: None = field(default=None, init=False)


@dataclass(frozen=True, slots=True)
class ServerLocation(StoreLocation):
    """The location options of a command that needs a server, such as `runnel queues`."""

    data_dir: None = field(default=None, init=False)
    redis_url: DefaultedRedisUrl = None


@dataclass(frozen=True, slots=True)
class RedisLocation(ServerLocation):
    """The location options of a process that needs a Redis server, such as `runnel worker`."""

    server: None = field(default=None, init=False)


def configure(location: StoreLocation, *, concurrency: int | None = None) -> Settings:
    """Returns the settings of the environment, changed by the options of the command line.

    A store that the command line names replaces the stores that the environment names. A Runnel
    server has priority over a Redis server.
    """
    _check_one_location(location)
    settings = override_settings(read_settings(), worker_concurrency=concurrency)
    if location.data_dir is not None:
        without = {"redis_url": None, "redis_host": None, "server_url": None}
        return msgspec.structs.replace(settings, data_dir=location.data_dir, **without)
    if location.redis_url is not None:
        url = parse_setting("REDIS_URL", "--redis-url", location.redis_url)
        return msgspec.structs.replace(settings, redis_url=url, server_url=None)
    if location.server is not None:
        url = parse_setting("RUNNEL_SERVER", "--server", location.server)
        return override_settings(settings, server_url=url)
    return settings


def configure_server(location: ServerLocation, *, concurrency: int | None = None) -> Settings:
    """Returns the settings as `configure` does; without any server, sets Redis on localhost."""
    from runnel.app.stores import build_redis_url

    settings = configure(location, concurrency=concurrency)
    if settings.has_server:
        return settings
    return override_settings(settings, redis_url=build_redis_url(settings))


def _check_one_location(location: StoreLocation) -> None:
    options = {
        "--data-dir": location.data_dir,
        "--redis-url": location.redis_url,
        "--server": location.server,
    }
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given[:2])} name two stores; give only one of them")


def parse_setting(name: str, option: str, text: str) -> object:
    """Parses an option's value as the value of the variable `name`; raises SettingsError."""
    variable = VARIABLES[name]
    try:
        return variable.parse(text)
    except ValueError as error:
        got = variable.hide(text)
        raise SettingsError([f"{option}: expected {error}, got '{got}'"]) from error


def check_concurrency(settings: Settings, concurrency: int | None) -> None:
    """Raises InputError if `--concurrency` is given although workers of a server run the tasks."""
    if settings.is_remote and concurrency is not None:
        raise InputError(
            "--concurrency: workers run this workflow, and each has its own limit; set it with "
            "'runnel worker --concurrency'"
        )


def read_labels(texts: Sequence[str], *, allows_reserved: bool = False) -> dict[str, str]:
    """Parses `KEY=VALUE` options; raises InputError."""
    labels: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise InputError(f"--label: expected KEY=VALUE, got '{text}'")
        if key.startswith(RESERVED_LABEL_PREFIX) and not allows_reserved:
            raise InputError(
                f"--label: names that begin with '{RESERVED_LABEL_PREFIX}' are reserved, got "
                f"'{key}'"
            )
        labels[key.strip()] = value
    return labels


# Durations and times as people type them: `90`, `1h30m`, `2h` ago, `2026-12-01 09:00`.

_UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_AGO_PATTERN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_DURATION_PATTERN = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+|\d+(?:\.\d+)?")
_DURATION_PART_PATTERN = re.compile(r"(\d+(?:\.\d+)?)([smhdw]?)")


def parse_duration(text: str, option: str) -> float:
    """Returns the duration in seconds; raises InputError, which names the option."""
    if _DURATION_PATTERN.fullmatch(text.strip()) is None:
        raise InputError(
            f"{option}: expected seconds, or a duration such as 45s, 10m, 1h30m or 2d, "
            f"got {quote_name(text)}"
        )
    parts = _DURATION_PART_PATTERN.findall(text)
    return sum(float(number) * _UNIT_S[unit or "s"] for number, unit in parts)


def parse_time(text: str, option: str, zone: tzinfo) -> float:
    """Returns the time in seconds since the epoch; raises InputError.

    A time without a zone is in `zone`.
    """
    try:
        time = datetime.fromisoformat(text.strip())
        return (time if time.tzinfo is not None else time.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError) as error:
        raise InputError(
            f"{option}: expected a time such as 2026-12-01T09:00 or 2026-12-01T08:00:00Z, "
            f"got {quote_name(text)}"
        ) from error


def parse_past_time(option: str, text: str, now: float) -> float:
    """Returns a past time in seconds since the epoch; raises InputError.

    `2h` means two hours ago. A date without a zone is in the zone of this machine.
    """
    ago = _AGO_PATTERN.fullmatch(text.strip())
    if ago is not None:
        return now - float(ago[1]) * _UNIT_S[ago[2]]
    try:
        return datetime.fromisoformat(text.strip()).astimezone().timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise InputError(
            f"{option}: expected how long ago (30m, 2h, 7d) or a date (2026-01-31, "
            f"2026-01-31T09:30, 2026-01-31T09:30Z), got '{text}'"
        ) from error


def confirm(question: str, refusal: str) -> None:
    """Asks the user to confirm; raises Abort if the user answers no.

    Raises InputError with `refusal` if stdin is not a terminal. Call this function outside an event
    loop: asyncio would swallow the first Ctrl-C.
    """
    if not sys.stdin.isatty():
        raise InputError(f"{refusal}; confirm with --yes")
    typer.confirm(question, abort=True, err=True)
