"""Which executions are meant, as parameters of a request."""

from collections.abc import Sequence
from math import isfinite

from runnel.core.checks.wording import shown
from runnel.core.states import ExecutionState
from runnel.errors import InputError
from runnel.ports.archive import ExecutionFilter
from runnel.views import moment


def states_of(names: Sequence[ExecutionState | str]) -> tuple[ExecutionState, ...]:
    """In capital letters or not; raises InputError."""
    known = {state.value: state for state in ExecutionState}
    for name in names:
        if name.upper() not in known:
            expected = ", ".join(known)
            raise InputError(f"states: expected some of {expected}, got {shown(name)}")
    return tuple(dict.fromkeys(known[name.upper()] for name in names))


def query_of(wanted: ExecutionFilter, *, with_page: bool = True) -> list[tuple[str, str]]:
    query = [("status", state.value) for state in wanted.states]
    query += [("label", f"{key}={value}") for key, value in wanted.labels.items()]
    single = {
        "workflow": wanted.workflow,
        "text": wanted.text,
        "rerun_of": wanted.rerun_of,
        "parent": wanted.parent,
        "created_from": moment(wanted.created_from) if isfinite(wanted.created_from) else None,
        "created_before": (
            moment(wanted.created_before) if isfinite(wanted.created_before) else None
        ),
        "children": "true" if wanted.with_children else None,
    }
    if with_page:
        single |= {"limit": str(wanted.limit), "after": wanted.after}
    return query + [(name, value) for name, value in single.items() if value]
