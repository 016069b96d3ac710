"""Only `evolve` changes an execution. The test inspects the source of the core."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from runnel.core import execution as model
from runnel.core.agenda import Agenda
from runnel.core.decide.decision_context import DecisionContext

CORE = Path(model.__file__).parent
CHANGERS = [CORE / "evolve.py", CORE / "execution.py"]
# Other objects in the core that have attributes of the same names.
CHANGEABLE = frozenset({"self", "agenda", "map_agenda", "limit"})
CHANGING_METHODS = frozenset(
    {"add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove"}
    | {"appendleft", "popleft", "reverse", "setdefault", "sort", "update"}
)
OWN_METHODS = frozenset({"adopt_results", "advance_next_item"})
STATE = frozenset(
    {
        *model.Execution.__slots__,
        *model.MapRun.__slots__,
        *model.NodeRun.__struct_fields__,
    }
)


def list_changes(tree: ast.AST) -> Iterator[str]:
    """Yields assignments to attributes that an execution, a node run or a map run has."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript):
            if isinstance(node.ctx, ast.Store | ast.Del) and is_state(node):
                yield f"{node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            is_change = name in CHANGING_METHODS and is_state(node.func.value)
            if is_change or name in OWN_METHODS:
                yield f"{node.lineno}: {ast.unparse(node.func)}"


def is_state(node: ast.expr) -> bool:
    """Returns whether the expression reaches into state and not into another known object."""
    names, is_inside = [], not isinstance(node, ast.Attribute)
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
        node = node.value
    root = node.id if isinstance(node, ast.Name) else ""
    is_other = not CHANGEABLE.isdisjoint([root, *names])
    # A local such as `nodes`, read from an execution a line before, is state as well.
    is_local = is_inside and root in STATE
    return not is_other and (is_local or not STATE.isdisjoint(names))


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(CORE.rglob("*.py")) if path not in CHANGERS],
    ids=lambda path: str(path.relative_to(CORE)),
)
def test_only_evolve_changes_an_execution(path: Path) -> None:
    assert list(list_changes(ast.parse(path.read_text()))) == []


@pytest.mark.parametrize(
    "change",
    [
        "execution.state = X.FAILED",
        "context.execution.in_flight += 1",
        "execution.maps[index].results = []",
        "execution.nodes[index] = run",
        "del execution.signals[name]",
        "map_run.active.pop(item)",
        "context.execution.signal_waiters.setdefault(name, []).append(index)",
        "nodes[index] = run",
        "found.advance_next_item(item)",
    ],
)
def test_a_change_of_an_execution_is_found(change: str) -> None:
    assert list(list_changes(ast.parse(change)))


def test_the_agenda_is_not_part_of_the_state_of_an_execution() -> None:
    fields = set(Agenda.__struct_fields__)

    # Blobs written for a map become state as soon as the map has begun with them.
    assert fields & STATE == {"maps", "offloaded_values"}
    assert "agenda" in DecisionContext.__slots__
    assert "agenda" not in STATE
