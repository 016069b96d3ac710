"""Options that several commands share, and the settings that they change."""

import math
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeAlias

import typer

from runnel.cli.render.text import RESERVED_LABEL_PREFIX
from runnel.core.wording import quote_name
from runnel.errors import InputError

if TYPE_CHECKING:
    from runnel.client.protocol import Client
    from runnel.core.states import ExecutionState
    from runnel.ports.archive import ExecutionFilter
    from runnel.settings.model import Settings


# What a shell completes: ids of executions and names of workflows, of a data directory.
#
# Not of a server: a shell that waits for one at each press of a key is worse than one that does
# not know. Nothing here may fail or speak: whatever is wrong, there is nothing to complete.

COMPLETIONS_MAX = 50


def complete_id(incomplete: str) -> list[str]:
    """Executions, the newest first."""
    return _complete_prefix(incomplete, _load_ids)


def complete_workflow(incomplete: str) -> list[str]:
    return _complete_prefix(incomplete, _load_workflow_names)


def _complete_prefix(
    incomplete: str, load: "Callable[[Client], Awaitable[Sequence[str]]]"
) -> list[str]:
    import asyncio

    from runnel.errors import RunnelError

    async def names() -> Sequence[str]:
        from runnel.app.stores import open_store_session

        settings = configure(StoreLocation())
        if settings.is_remote:
            return ()
        async with open_store_session(settings) as session:
            return await load(session.client)

    with suppress(RunnelError):
        return [name for name in asyncio.run(names()) if name.startswith(incomplete)]
    return []


async def _load_ids(client: "Client") -> Sequence[str]:
    from runnel.ports.archive import ExecutionFilter

    found = await client.list_executions(ExecutionFilter(limit=COMPLETIONS_MAX))
    return ["@last", *(header.execution_id for header in found)]


async def _load_workflow_names(client: "Client") -> Sequence[str]:
    return [each.name for each in await client.library.list(limit=COMPLETIONS_MAX)]


WorkflowFile: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A workflow: YAML, JSON, or a Python file with a @workflow (flow.py, flow.py:name).",
        show_default=False,
        readable=False,
    ),
]
ExecutionIdArgument: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="An execution: its id, the first characters of it, or @last.",
        autocompletion=complete_id,
        show_default=False,
    ),
]
OptionalExecutionId: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="[ID]",
        help="An execution: its id, the first characters of it, or @last. Without it, all that "
        "the options say.",
        autocompletion=complete_id,
        show_default=False,
    ),
]
SkipConfirmation: TypeAlias = Annotated[
    bool, typer.Option("--yes", help="Do not ask whether many executions are meant.")
]
DataDir: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Where executions are stored. [dim]\\[default: $RUNNEL_DATA_DIR or .runnel][/dim]",
        show_default=False,
        readable=False,
    ),
]
RedisUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--redis-url",
        metavar="URL",
        help="The Redis server to use instead of a data directory. "
        "[dim]\\[default: $REDIS_URL, or $REDIS_HOST and the like][/dim]",
        show_default=False,
    ),
]
Server: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="The Runnel server to use, over HTTP, with the token in $RUNNEL_TOKEN. "
        "[dim]\\[default: $RUNNEL_SERVER][/dim]",
        show_default=False,
    ),
]
DefaultedRedisUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--redis-url",
        metavar="URL",
        help="The Redis server. "
        "[dim]\\[default: $REDIS_URL, or $REDIS_HOST and the like, or localhost][/dim]",
        show_default=False,
    ),
]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON object per line, for programs.")
]


def check_finite(value: float | None) -> float | None:
    """For options that are numbers: `nan` and `inf` are read as numbers, too."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"expected a number, got '{value}'")
    return value


class StoreLocation(NamedTuple):
    """Where the command line says that executions are: one of them; none asks the environment."""

    data_dir: Path | None = None
    redis_url: str | None = None
    server: str | None = None


def configure_server(location: StoreLocation, *, concurrency: int | None = None) -> "Settings":
    """As `configure`, for what makes sense on a server only: there is always one."""
    from runnel.app.stores import build_redis_url
    from runnel.settings import override_settings

    settings = configure(location, concurrency=concurrency)
    if settings.has_server:
        return settings
    return override_settings(settings, redis_url=build_redis_url(settings))


def configure(location: StoreLocation, *, concurrency: int | None = None) -> "Settings":
    """The settings of the environment, with what the command line says about them.

    A place that is named here wins over those that are set there, and a server over a Redis.
    """
    import msgspec

    from runnel.settings import override_settings, read_settings

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


def _check_one_location(location: StoreLocation) -> None:
    from runnel.errors import InputError

    options = {
        "--data-dir": location.data_dir,
        "--redis-url": location.redis_url,
        "--server": location.server,
    }
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given[:2])} are two places; give only one of them")


def parse_setting(name: str, option: str, text: str) -> object:
    from runnel.settings import SettingsError
    from runnel.settings.variables import VARIABLES

    variable = VARIABLES[name]
    try:
        return variable.parse(text)
    except ValueError as error:
        got = variable.hide(text)
        raise SettingsError([f"{option}: expected {error}, got '{got}'"]) from error


# Options that say which executions are meant, and the filter that they make.

StatusFilters: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--status", help="Only executions in this state; may be repeated.", show_default=False
    ),
]
WorkflowName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--workflow",
        metavar="NAME",
        help="Only executions of this workflow.",
        autocompletion=complete_workflow,
        show_default=False,
    ),
]
LabelFilters: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="KEY=VALUE",
        help="Only executions with this label; of several, with all of them.",
        show_default=False,
    ),
]
Since: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="WHEN",
        help="Only executions created since then: 30m, 2h, 7d ago, or 2026-01-31T09:30.",
        show_default=False,
    ),
]
Until: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="WHEN",
        help="Only executions created before then, said as for --since.",
        show_default=False,
    ),
]
Search: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--search",
        metavar="TEXT",
        help="Only executions with this in their id, workflow, error or a label's value.",
        show_default=False,
    ),
]

_AGO_PATTERN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}


class ExecutionSelection(NamedTuple):
    """As the command line says it."""

    status: list[str] | None = None
    workflow: str | None = None
    labels: list[str] | None = None
    since: str | None = None
    until: str | None = None
    search: str | None = None

    @property
    def is_empty(self) -> bool:
        return not any(self)


def build_filter(
    selection: ExecutionSelection,
    now: float,
    *,
    allowed_states: "tuple[ExecutionState, ...] | None" = None,
) -> "ExecutionFilter":
    """Of the states in `allowed_states`, which are all of them unless given; raises InputError."""
    from math import inf

    from runnel.client.listing import check_filter
    from runnel.ports.archive import ExecutionFilter

    wanted = ExecutionFilter(
        states=_parse_states(selection.status or [], allowed_states),
        workflow=selection.workflow,
        labels=read_labels(selection.labels or [], allows_reserved=True),
        created_from=-inf
        if selection.since is None
        else parse_past_time("--since", selection.since, now),
        created_before=inf
        if selection.until is None
        else parse_past_time("--until", selection.until, now),
        text=selection.search or "",
    )
    check_filter(wanted)
    return wanted


def read_labels(texts: Sequence[str], *, allows_reserved: bool = False) -> dict[str, str]:
    """Parse `KEY=VALUE` options; raises InputError."""
    labels: dict[str, str] = {}
    for word in texts:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise InputError(f"--label: expected KEY=VALUE, got '{word}'")
        if key.startswith(RESERVED_LABEL_PREFIX) and not allows_reserved:
            raise InputError(
                f"--label: names that begin with '{RESERVED_LABEL_PREFIX}' are reserved, got "
                f"'{key}'"
            )
        labels[key.strip()] = value
    return labels


def check_selection(execution_id: str | None, selection: ExecutionSelection) -> None:
    """Raises InputError unless one execution is named, or some are chosen."""
    from runnel.errors import InputError

    if execution_id is None and selection.is_empty:
        raise InputError("give the id of an execution, or say which ones: --workflow, --label, …")
    if execution_id is not None and not selection.is_empty:
        raise InputError("give the id of an execution, or options that say which ones; not both")


def parse_past_time(option: str, text: str, now: float) -> float:
    """`2h` is two hours ago; a date without a zone is one of this machine's. Raises InputError."""
    from datetime import datetime

    from runnel.errors import InputError

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


def _parse_states(
    names: list[str], allowed_states: "tuple[ExecutionState, ...] | None"
) -> "tuple[ExecutionState, ...]":
    from runnel.core.states import ExecutionState
    from runnel.errors import InputError

    allowed = allowed_states or tuple(ExecutionState)
    for name in names:
        if name.upper() not in allowed:
            expected = ", ".join(state.lower() for state in allowed)
            raise InputError(f"--status: expected one of {expected}, got '{name}'")
    if not names:
        return allowed_states or ()
    return tuple(dict.fromkeys(ExecutionState(name.upper()) for name in names))


# Durations and times as people type them: `90`, `1h30m`, `2026-12-01 09:00`.

_DURATION_PATTERN = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+|\d+(?:\.\d+)?")
_DURATION_PART_PATTERN = re.compile(r"(\d+(?:\.\d+)?)([smhdw]?)")


def parse_duration(text: str, option: str) -> float:
    """Seconds; raises InputError, which names the option."""
    if _DURATION_PATTERN.fullmatch(text.strip()) is None:
        raise InputError(
            f"{option}: expected seconds, or a duration such as 45s, 10m, 1h30m or 2d, "
            f"got {quote_name(text)}"
        )
    parts = _DURATION_PART_PATTERN.findall(text)
    return sum(float(number) * _UNIT_S[unit or "s"] for number, unit in parts)


def parse_time(text: str, option: str, zone: tzinfo) -> float:
    """Seconds since the epoch; what names no zone is in `zone`. Raises InputError."""
    try:
        found = datetime.fromisoformat(text.strip())
        return (found if found.tzinfo is not None else found.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError) as error:
        raise InputError(
            f"{option}: expected a time such as 2026-12-01T09:00 or 2026-12-01T08:00:00Z, "
            f"got {quote_name(text)}"
        ) from error


# Whether something is really meant.


def confirm(question: str, refusal: str) -> None:
    """Raises Abort for a no; InputError, with `refusal`, when there is nobody to ask."""
    if not sys.stdin.isatty():
        raise InputError(f"{refusal}; say so with --yes")
    typer.confirm(question, abort=True, err=True)
