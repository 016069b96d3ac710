"""Static checks of a workflow's body: which names stand for results, and wrong tests of them."""

import ast
import builtins
import inspect
from collections import defaultdict
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, TypeAlias

from runnel.authoring.calls import AnyFunction
from runnel.authoring.decorators.source_location import (
    ASK_IN_TASK,
    NOT_YET_AVAILABLE,
    SourceLocation,
)
from runnel.authoring.decorators.task import TracedCallable, default, handler, item, secret, text

Assignments: TypeAlias = Mapping[str, list[ast.expr | None]]

_CHAINED_METHODS = frozenset({"options", "when", "after", "map", "run_options"})
_PLACEHOLDER_FUNCTIONS = (handler, item, secret, text)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class KnownResults:
    """A parameter counts, and a name when all that the body ever gives it are results.

    So `best = None` before a loop over plain values leaves `best is None` to Python.
    """

    def __init__(self, definition: ast.FunctionDef, function: AnyFunction) -> None:
        arguments = definition.args
        inputs = {argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)}
        stores = _collect_assignments(definition)
        self._outer_names = {**vars(builtins), **_collect_visible_names(function)}
        self._local_names = {*inputs, *stores}
        self._list_names = set(stores) - inputs
        self._result_names = set(self._local_names)
        self._input_names = inputs
        self._discard_non_results(
            {name: values for name, values in stores.items() if name not in inputs}
        )

    def describe(self, expression: ast.expr) -> str | None:
        """In words; None for what is no result, or can't be told."""
        if not self._is_result(expression):
            return None
        root = expression
        while isinstance(root, ast.Subscript | ast.Attribute):
            root = root.value
        if not isinstance(root, ast.Name):
            return "a result"
        return f"the {'input' if root.id in self._input_names else 'result'} '{root.id}'"

    def calls_tasks(self, statement: ast.stmt) -> bool:
        return any(
            isinstance(node, ast.Call) and self._is_task(node.func)
            for node in iterate_scope(statement)
        )

    def _discard_non_results(self, stores: Assignments) -> None:
        """What is left holds results only; names may be made of each other, so until none goes."""
        size = -1
        while size != len(self._result_names) + len(self._list_names):
            size = len(self._result_names) + len(self._list_names)
            for name, values in stores.items():
                if not all(value is not None and self._is_result(value) for value in values):
                    self._result_names.discard(name)
                if not all(value is not None and self._is_list(value) for value in values):
                    self._list_names.discard(name)

    def _is_result(self, expression: ast.expr) -> bool:
        match expression:
            case ast.Name(id=name):
                return name in self._result_names
            case ast.Subscript(value=holder):
                return self._is_result(holder) or self._is_list(holder)
            case ast.Attribute(value=holder) | ast.NamedExpr(value=holder):
                return self._is_result(holder)
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return self._is_result(operand)
            case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr(), right=right):
                return self._is_result(left) or self._is_result(right)
            case ast.Compare(left=left, comparators=[right]):
                return self._is_result(left) or self._is_result(right)
            case ast.Call(func=called, args=arguments):
                function = self._resolve_outer_name(called)
                is_choice = function is default and arguments and self._is_result(arguments[0])
                is_made = any(function is maker for maker in _PLACEHOLDER_FUNCTIONS)
                return (
                    bool(is_choice) or is_made or self._is_task(called) or self._is_result(called)
                )
            case _:
                return False

    def _is_list(self, expression: ast.expr) -> bool:
        """Of results: what a loop over it finds."""
        match expression:
            case ast.Name(id=name):
                return name in self._list_names
            case ast.List(elts=[_, *_] as items) | ast.Tuple(elts=[_, *_] as items):
                return all(map(self._is_result, items))
            case ast.ListComp(elt=value) | ast.GeneratorExp(elt=value):
                return self._is_result(value)
            case _:
                return False

    def _is_task(self, called: ast.expr) -> bool:
        """`fetch`, `tasks.fetch`, `fetch.options(retries=3)`, `handler("resize").map`."""
        if isinstance(self._resolve_outer_name(called), TracedCallable):
            return True
        match called:
            case ast.Attribute(value=holder, attr=name) if name in _CHAINED_METHODS:
                return self._is_task(holder)
            case ast.Call(func=function):
                return self._is_task(function) or self._resolve_outer_name(function) is handler
            case _:
                return False

    def _resolve_outer_name(self, expression: ast.expr) -> Any:
        """What a name outside of the body, or in a module or class there, stands for."""
        match expression:
            case ast.Name(id=name) if name not in self._local_names:
                return self._outer_names.get(name)
            case ast.Attribute(value=holder, attr=name):
                owner = self._resolve_outer_name(holder)
                return getattr(owner, name, None) if isinstance(owner, ModuleType | type) else None
            case _:
                return None


def iterate_scope(node: ast.AST) -> Iterator[ast.AST]:
    """All that belongs to it, without functions in it: those have names of their own."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _SCOPES):
            yield from iterate_scope(child)


def _collect_visible_names(function: AnyFunction) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    enclosing = {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}
    return {**function.__globals__, **enclosing}


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _collect_assignments(definition: ast.FunctionDef) -> Assignments:
    """All that each name is given; None is what can't be said."""
    values_by_name: dict[str, list[ast.expr | None]] = defaultdict(list)
    for node in iterate_scope(definition):
        for target, value in _iterate_targets(node):
            for name, part in _iterate_target_names(target, value):
                values_by_name[name].append(part)
    return values_by_name


def _iterate_targets(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    match node:
        case ast.Assign(targets=targets, value=value):
            yield from ((target, value) for target in targets)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield target, value
        case ast.NamedExpr(target=target, value=value):
            yield target, value
        case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
            yield target, ast.BinOp(left=ast.Name(id=name), op=op, right=value)
        case ast.For(target=target, iter=items) | ast.comprehension(target=target, iter=items):
            yield target, ast.Subscript(value=items, slice=ast.Constant(value=0))
        case ast.withitem(optional_vars=ast.expr() as target):
            yield target, None
        case ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name):
            yield ast.Name(id=name), None
        case ast.ExceptHandler(name=str() as name):
            yield ast.Name(id=name), None
        case _:
            return


def _iterate_target_names(
    target: ast.expr, value: ast.expr | None
) -> Iterator[tuple[str, ast.expr | None]]:
    """The names in a target; of `a, b = f(x), g(x)` each with its own."""
    match target, value:
        case ast.Name(id=name), _:
            yield name, value
        case ast.Tuple(elts=targets) | ast.List(elts=targets), ast.Tuple(elts=values) if len(
            targets
        ) == len(values):
            for element, own in zip(targets, values, strict=True):
                yield from _iterate_target_names(element, own)
        case ast.Tuple(elts=targets) | ast.List(elts=targets), _:
            for element in targets:
                yield from _iterate_target_names(element, None)
        case ast.Starred(value=inner), _:
            yield from _iterate_target_names(inner, None)
        case _:
            return


# Tests that Python answers without asking the placeholder. `url is None` is false while a workflow
# is traced, whatever the input will be, and nothing would ever say so. In the same way nothing is
# raised that `except` could catch.

_IS_ADVICE = "write task.when(x == None)(...), or decide inside a task"
_GETATTR_ADVICE = "write runnel.default(x['name'], value), or ask inside a task"
_TYPE_FUNCTIONS = frozenset({"isinstance", "issubclass", "type", "callable"})


def check_untraceable_code(function: AnyFunction) -> None:
    """Raises TraceError for the first one; does nothing where there is no source."""
    function = inspect.unwrap(function)
    definition, first_line = _parse_definition(function)
    if definition is None:
        return
    known = KnownResults(definition, function)
    for node in iterate_scope(definition):
        for problem in _find_problems(node, known):
            line = first_line + getattr(node, "lineno", 1) - 1
            raise SourceLocation(function.__code__.co_filename, line).build_error(problem)


def _parse_definition(function: AnyFunction) -> tuple[ast.FunctionDef | None, int]:
    try:
        lines, first_line = inspect.getsourcelines(function)
        statement = _parse_statement("".join(lines))
    except (OSError, TypeError, SyntaxError, ValueError):
        return None, 0
    return (statement if isinstance(statement, ast.FunctionDef) else None), first_line


def _parse_statement(source: str) -> ast.stmt:
    """Below an `if` when it is indented: to cut that off could break texts of several lines."""
    if not source[:1].isspace():
        return ast.parse(source).body[0]
    (around,) = ast.parse(f"if 1:\n{source}").body
    return ast.increment_lineno(around, -1).body[0] if isinstance(around, ast.If) else around


def _find_problems(node: ast.AST, known: KnownResults) -> Iterator[str]:
    if isinstance(node, ast.Try | ast.TryStar):
        if any(map(known.calls_tasks, node.body)):
            yield _describe_try(node)
        return
    for operand, problem in _find_untraceable_tests(node):
        description = known.describe(operand)
        if description is not None:
            yield problem.format(what=f"{description}, {NOT_YET_AVAILABLE}")


def _describe_try(node: ast.Try | ast.TryStar) -> str:
    action, rule = "cleans up behind tasks", "all_settled"
    if node.handlers:
        action, rule = "catches what tasks raise", "one_failed"
    return (
        f"{action}, which run long after this; write "
        f'task.options(run_when="{rule}").after(result)(...), or do it inside a task'
    )


def _find_untraceable_tests(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    match node:
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            if any(isinstance(op, ast.Is | ast.IsNot) for op in ops):
                for operand in (left, *comparators):
                    yield operand, f"asks by 'is' about {{what}}; {_IS_ADVICE}"
        case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in _TYPE_FUNCTIONS:
            yield first, f"asks for the type of {{what}}; {ASK_IN_TASK}"
        case (
            ast.Call(func=ast.Name(id="hasattr"), args=[first, _])
            | ast.Call(func=ast.Name(id="getattr"), args=[first, _, _])
        ):
            yield first, f"asks what there is in {{what}}; {_GETATTR_ADVICE}"
        case ast.Match(subject=subject):
            parts = subject.elts if isinstance(subject, ast.Tuple | ast.List) else [subject]
            for operand in parts:
                yield (
                    operand,
                    "decides by {what}; write task.when(condition)(...), or decide in a task",
                )
        case _:
            return
