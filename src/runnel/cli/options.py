"""Options that several commands share, and the settings that they change."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

if TYPE_CHECKING:
    from runnel.settings import Settings

File: TypeAlias = Annotated[
    Path, typer.Argument(metavar="FILE", help="A workflow in YAML or JSON.", show_default=False)
]
Id: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="An execution: its id, the first characters of it, or @last.",
        show_default=False,
    ),
]
DataDir: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Where executions are stored. [dim]\\[default: $RUNNEL_DATA_DIR or .runnel][/dim]",
        show_default=False,
    ),
]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON object per line, for programs.")
]


def configure(data_dir: Path | None, *, concurrency: int | None = None) -> "Settings":
    """The settings of the environment, with what the command line says about them."""
    import msgspec

    from runnel.settings import read_settings

    changes: dict[str, object] = {}
    if data_dir is not None:
        changes["data_dir"] = data_dir
    if concurrency is not None:
        changes["worker_concurrency"] = concurrency
    return msgspec.structs.replace(read_settings(), **changes)
