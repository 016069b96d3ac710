"""Options that several commands share, and the settings that they change."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeAlias

import typer

from runnel.cli.completion import complete_id

if TYPE_CHECKING:
    from runnel.settings import Settings

File: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A workflow: YAML, JSON, or a Python file with a @workflow (flow.py, flow.py:name).",
        show_default=False,
        readable=False,
    ),
]
Id: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="An execution: its id, the first characters of it, or @last.",
        autocompletion=complete_id,
        show_default=False,
    ),
]
IdOrFilter: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="[ID]",
        help="An execution: its id, the first characters of it, or @last. Without it, all that "
        "the options say.",
        autocompletion=complete_id,
        show_default=False,
    ),
]
IsSure: TypeAlias = Annotated[
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
ServerUrl: TypeAlias = Annotated[
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


def finite(value: float | None) -> float | None:
    """For options that are numbers: `nan` and `inf` are read as numbers, too."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"expected a number, got '{value}'")
    return value


class Place(NamedTuple):
    """Where the command line says that executions are: one of them; none asks the environment."""

    data_dir: Path | None = None
    redis_url: str | None = None
    server: str | None = None


def configure_server(place: Place, *, concurrency: int | None = None) -> "Settings":
    """As `configure`, for what makes sense on a server only: there is always one."""
    from runnel.runtime.addresses import redis_address
    from runnel.settings import adjusted

    settings = configure(place, concurrency=concurrency)
    if settings.has_server:
        return settings
    return adjusted(settings, redis_url=redis_address(settings))


def configure(place: Place, *, concurrency: int | None = None) -> "Settings":
    """The settings of the environment, with what the command line says about them.

    A place that is named here wins over those that are set there, and a server over a Redis.
    """
    import msgspec

    from runnel.settings import adjusted, read_settings

    _check(place)
    settings = adjusted(read_settings(), worker_concurrency=concurrency)
    if place.data_dir is not None:
        without = {"redis_url": None, "redis_host": None, "server_url": None}
        return msgspec.structs.replace(settings, data_dir=place.data_dir, **without)
    if place.redis_url is not None:
        url = parsed("REDIS_URL", "--redis-url", place.redis_url)
        return msgspec.structs.replace(settings, redis_url=url, server_url=None)
    if place.server is not None:
        url = parsed("RUNNEL_SERVER", "--server", place.server)
        return adjusted(settings, server_url=url)
    return settings


def _check(place: Place) -> None:
    from runnel.errors import InputError

    options = {
        "--data-dir": place.data_dir,
        "--redis-url": place.redis_url,
        "--server": place.server,
    }
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given[:2])} are two places; give only one of them")


def parsed(name: str, option: str, text: str) -> object:
    from runnel.settings import VARIABLES, SettingsError

    variable = VARIABLES[name]
    try:
        return variable.parse(text)
    except ValueError as error:
        got = variable.hide(text)
        raise SettingsError([f"{option}: expected {error}, got '{got}'"]) from error
