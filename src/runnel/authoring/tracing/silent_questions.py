"""Questions that Python answers without asking the placeholder: found in the source of the body.

`url is None` is false while a workflow is traced, whatever the input will be, and nothing would
ever say so.
"""

import ast
import inspect
import textwrap
from collections import Counter
from collections.abc import Iterator
from typing import Any

from runnel.authoring.calls import AnyFunction
from runnel.authoring.tracing.callee import Callee
from runnel.authoring.tracing.refusals import NOT_YET
from runnel.authoring.tracing.spots import Spot

_INSTEAD_OF_IS = "write task.when(x == None)(...), or decide inside a task"
_OF_TYPE = frozenset({"isinstance", "issubclass", "type", "callable"})


def check_questions(function: AnyFunction) -> None:
    """Raises TraceError for the first one; does nothing where there is no source."""
    definition, first_line = _definition(function)
    if definition is None:
        return
    known = dict(_results(definition, function))
    known |= {name: f"the input '{name}'" for name in inspect.signature(function).parameters}
    for node in ast.walk(definition):
        for asked, problem in _questions(node):
            if (name := _root(asked)) in known:
                line = first_line + getattr(node, "lineno", 1) - 1
                spot = Spot(function.__code__.co_filename, line)
                raise spot.refusal(problem.format(what=f"{known[name]}, {NOT_YET}"))


def _definition(function: AnyFunction) -> tuple[ast.FunctionDef | None, int]:
    try:
        lines, first_line = inspect.getsourcelines(function)
        (found,) = ast.parse(textwrap.dedent("".join(lines))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return None, 0
    return (found if isinstance(found, ast.FunctionDef) else None), first_line


def _results(definition: ast.FunctionDef, function: AnyFunction) -> Iterator[tuple[str, str]]:
    """The names that hold nothing but what calls of tasks and workflows return."""
    counts = Counter(
        node.id
        for node in ast.walk(definition)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    for node in ast.walk(definition):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                callee: Any = function.__globals__.get(_root(call) or "")
                counts[name] -= isinstance(callee, Callee)
                if not counts[name]:
                    yield name, f"the result '{name}'"
            case _:
                continue


def _questions(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    match node:
        case ast.Compare(left=left, ops=ops, comparators=others):
            if any(isinstance(op, ast.Is | ast.IsNot) for op in ops):
                for each in (left, *others):
                    yield each, f"asks by 'is' about {{what}}; {_INSTEAD_OF_IS}"
        case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in _OF_TYPE:
            yield first, "asks for the type of {what}; ask inside a task"
        case ast.Match(subject=subject):
            yield subject, "decides by {what}; write task.when(condition)(...), or decide in a task"
        case _:
            return


def _root(node: ast.expr) -> str | None:
    """`page` of `page["a"].b`; None for what begins otherwise."""
    while isinstance(node, ast.Subscript | ast.Attribute | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None
