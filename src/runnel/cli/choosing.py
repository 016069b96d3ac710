"""Options that say which executions are meant, and the filter that they make."""

import re
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeAlias

import typer

from runnel.cli.completion import complete_workflow

if TYPE_CHECKING:
    from runnel.core.states import ExecutionState
    from runnel.ports.archive import ExecutionFilter

Statuses: TypeAlias = Annotated[
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
HasLabels: TypeAlias = Annotated[
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

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}


class Chosen(NamedTuple):
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


def filter_of(
    chosen: Chosen,
    now: float,
    *,
    known: "tuple[ExecutionState, ...] | None" = None,
) -> "ExecutionFilter":
    """Of the states in `known`, which are all of them unless given; raises InputError."""
    from math import inf

    from runnel.cli.inputs import read_labels
    from runnel.listing import check_filter
    from runnel.ports.archive import ExecutionFilter

    wanted = ExecutionFilter(
        states=_states(chosen.status or [], known),
        workflow=chosen.workflow,
        labels=read_labels(chosen.labels or [], allows_reserved=True),
        created_from=-inf if chosen.since is None else moment_of("--since", chosen.since, now),
        created_before=inf if chosen.until is None else moment_of("--until", chosen.until, now),
        text=chosen.search or "",
    )
    check_filter(wanted)
    return wanted


def check_choice(execution_id: str | None, chosen: Chosen) -> None:
    """Raises InputError unless one execution is named, or some are chosen."""
    from runnel.errors import InputError

    if execution_id is None and chosen.is_empty:
        raise InputError("give the id of an execution, or say which ones: --workflow, --label, …")
    if execution_id is not None and not chosen.is_empty:
        raise InputError("give the id of an execution, or options that say which ones; not both")


def moment_of(option: str, text: str, now: float) -> float:
    """`2h` is two hours ago; a date without a zone is one of this machine's. Raises InputError."""
    from datetime import datetime

    from runnel.errors import InputError

    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return now - float(ago[1]) * _UNIT_S[ago[2]]
    try:
        return datetime.fromisoformat(text.strip()).astimezone().timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise InputError(
            f"{option}: expected how long ago (30m, 2h, 7d) or a date (2026-01-31, "
            f"2026-01-31T09:30, 2026-01-31T09:30Z), got '{text}'"
        ) from error


def _states(
    names: list[str], known: "tuple[ExecutionState, ...] | None"
) -> "tuple[ExecutionState, ...]":
    from runnel.core.states import ExecutionState
    from runnel.errors import InputError

    allowed = known or tuple(ExecutionState)
    for name in names:
        if name.upper() not in allowed:
            expected = ", ".join(state.lower() for state in allowed)
            raise InputError(f"--status: expected one of {expected}, got '{name}'")
    if not names:
        return known or ()
    return tuple(dict.fromkeys(ExecutionState(name.upper()) for name in names))
