"""Questions that Python answers without asking the placeholder: found in the source of the body.

`url is None` is false while a workflow is traced, whatever the input will be, and nothing would
ever say so. In the same way nothing is raised that `except` could catch.
"""

import ast
import inspect
from collections.abc import Iterator

from runnel.authoring.calls import AnyFunction
from runnel.authoring.tracing.known_results import KnownResults, inside
from runnel.authoring.tracing.refusals import ASK_LATER, NOT_YET
from runnel.authoring.tracing.spots import Spot

_INSTEAD_OF_IS = "write task.when(x == None)(...), or decide inside a task"
_INSTEAD_OF_GETATTR = "write runnel.default(x['name'], value), or ask inside a task"
_OF_TYPE = frozenset({"isinstance", "issubclass", "type", "callable"})


def check_questions(function: AnyFunction) -> None:
    """Raises TraceError for the first one; does nothing where there is no source."""
    function = inspect.unwrap(function)
    definition, first_line = _definition(function)
    if definition is None:
        return
    known = KnownResults(definition, function)
    for node in inside(definition):
        for problem in _problems(node, known):
            line = first_line + getattr(node, "lineno", 1) - 1
            raise Spot(function.__code__.co_filename, line).refusal(problem)


def _definition(function: AnyFunction) -> tuple[ast.FunctionDef | None, int]:
    try:
        lines, first_line = inspect.getsourcelines(function)
        found = _parsed("".join(lines))
    except (OSError, TypeError, SyntaxError, ValueError):
        return None, 0
    return (found if isinstance(found, ast.FunctionDef) else None), first_line


def _parsed(source: str) -> ast.stmt:
    """Below an `if` when it is indented: to cut that off could break texts of several lines."""
    if not source[:1].isspace():
        return ast.parse(source).body[0]
    (around,) = ast.parse(f"if 1:\n{source}").body
    return ast.increment_lineno(around, -1).body[0] if isinstance(around, ast.If) else around


def _problems(node: ast.AST, known: KnownResults) -> Iterator[str]:
    if isinstance(node, ast.Try | ast.TryStar):
        if any(map(known.calls_tasks, node.body)):
            yield _caught(node)
        return
    for asked, problem in _questions(node):
        what = known.describe(asked)
        if what is not None:
            yield problem.format(what=f"{what}, {NOT_YET}")


def _caught(node: ast.Try | ast.TryStar) -> str:
    what, rule = "cleans up behind tasks", "all_settled"
    if node.handlers:
        what, rule = "catches what tasks raise", "one_failed"
    return (
        f"{what}, which run long after this; write "
        f'task.options(run_when="{rule}").after(result)(...), or do it inside a task'
    )


def _questions(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    match node:
        case ast.Compare(left=left, ops=ops, comparators=others):
            if any(isinstance(op, ast.Is | ast.IsNot) for op in ops):
                for each in (left, *others):
                    yield each, f"asks by 'is' about {{what}}; {_INSTEAD_OF_IS}"
        case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in _OF_TYPE:
            yield first, f"asks for the type of {{what}}; {ASK_LATER}"
        case (
            ast.Call(func=ast.Name(id="hasattr"), args=[first, _])
            | ast.Call(func=ast.Name(id="getattr"), args=[first, _, _])
        ):
            yield first, f"asks what there is in {{what}}; {_INSTEAD_OF_GETATTR}"
        case ast.Match(subject=subject):
            parts = subject.elts if isinstance(subject, ast.Tuple | ast.List) else [subject]
            for each in parts:
                yield (
                    each,
                    "decides by {what}; write task.when(condition)(...), or decide in a task",
                )
        case _:
            return
