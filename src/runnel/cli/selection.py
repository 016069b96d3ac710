"""The options that choose executions, and the filter that they make."""

from dataclasses import dataclass
from math import inf
from typing import Annotated

import typer

from runnel.cli.options import complete_workflow, parse_past_time, read_labels
from runnel.client.execution_lists import check_filter
from runnel.core.states import ExecutionState
from runnel.errors import InputError
from runnel.ports.archive import ExecutionFilter


@dataclass(frozen=True, slots=True)
class ExecutionSelection:
    """The options that filter executions, as the user typed them."""

    status: Annotated[
        list[str] | None,
        typer.Option("--status", help="Only executions in this state; repeatable."),
    ] = None
    workflow: Annotated[
        str | None,
        typer.Option(
            "--workflow",
            metavar="NAME",
            help="Only executions of this workflow.",
            autocompletion=complete_workflow,
        ),
    ] = None
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--label",
            metavar="KEY=VALUE",
            help="Only executions with this label; repeatable: an execution must have all labels.",
        ),
    ] = None
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="WHEN",
            help="Only executions created since this time: 30m, 2h or 7d ago, or 2026-01-31T09:30.",
        ),
    ] = None
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="WHEN",
            help="Only executions created before this time, in the formats of --since.",
        ),
    ] = None
    search: Annotated[
        str | None,
        typer.Option(
            "--search",
            metavar="TEXT",
            help="Only executions whose id, workflow, error or label value contains this text.",
        ),
    ] = None

    @property
    def is_empty(self) -> bool:
        filters = (self.status, self.workflow, self.labels, self.since, self.until, self.search)
        return not any(filters)


def build_filter(
    selection: ExecutionSelection,
    now: float,
    *,
    allowed_states: tuple[ExecutionState, ...] = (),
) -> ExecutionFilter:
    """Returns the filter that the options describe; raises InputError.

    The filter is restricted to `allowed_states` unless they are empty.
    """
    since, until = selection.since, selection.until
    execution_filter = ExecutionFilter(
        states=_parse_states(selection.status or [], allowed_states),
        workflow=selection.workflow,
        labels=read_labels(selection.labels or [], allows_reserved=True),
        created_from=-inf if since is None else parse_past_time("--since", since, now),
        created_before=inf if until is None else parse_past_time("--until", until, now),
        text=selection.search or "",
    )
    check_filter(execution_filter)
    return execution_filter


def check_selection(execution_id: str | None, selection: ExecutionSelection) -> None:
    """Raises InputError unless the user gave either an execution id or filters."""
    if execution_id is None and selection.is_empty:
        raise InputError("give the id of an execution, or a filter: --workflow, --label, …")
    if execution_id is not None and not selection.is_empty:
        raise InputError("give the id of an execution, or filters; not both")


def _parse_states(
    names: list[str], allowed_states: tuple[ExecutionState, ...]
) -> tuple[ExecutionState, ...]:
    allowed = allowed_states or tuple(ExecutionState)
    for name in names:
        if name.upper() not in allowed:
            expected = ", ".join(state.lower() for state in allowed)
            raise InputError(f"--status: expected one of {expected}, got '{name}'")
    if not names:
        return allowed_states
    return tuple(dict.fromkeys(ExecutionState(name.upper()) for name in names))
