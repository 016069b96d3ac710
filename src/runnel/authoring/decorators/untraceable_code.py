"""Static checks of a workflow's body: finds code that tracing would silently get wrong.

`url is None` and `isinstance(url, str)` run without an error while a workflow is traced, but test
the placeholder and not the value. `try` around a task catches nothing, because the task runs later.
"""

import ast
import builtins
import inspect
from collections import defaultdict
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, TypeAlias

from runnel.authoring.calls import AnyFunction
from runnel.authoring.decorators.source_location import (
    NOT_YET_AVAILABLE,
    TEST_IN_TASK,
    SourceLocation,
)
from runnel.authoring.decorators.task import TracedCallable, default, handler, item, secret, text

Assignments: TypeAlias = Mapping[str, list[ast.expr | None]]

_CHAINED_METHODS = frozenset({"options", "when", "after", "map", "run_options"})
_PLACEHOLDER_FUNCTIONS = (handler, item, secret, text)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class KnownResults:
    """The names in a workflow's body that always hold placeholders.

    These names are the parameters, and the local names to which the body assigns only results. If
    the body has `best = None` before a loop, `best` is excluded: the test `best is None` is valid.
    """

    def __init__(self, definition: ast.FunctionDef, function: AnyFunction) -> None:
        arguments = definition.args
        inputs = {argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)}
        assignments = _collect_assignments(definition)
        self._outer_names = {**vars(builtins), **_collect_visible_names(function)}
        self._local_names = {*inputs, *assignments}
        self._list_names = set(assignments) - inputs
        self._result_names = set(self._local_names)
        self._input_names = inputs
        self._discard_non_results(
            {name: values for name, values in assignments.items() if name not in inputs}
        )

    def describe(self, expression: ast.expr) -> str | None:
        """Returns a description of the placeholder; None if the expression may be another value."""
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

    def _discard_non_results(self, assignments: Assignments) -> None:
        """Removes the names that may hold values other than placeholders.

        Names can be assigned from each other, so the loop repeats until no name is removed.
        """
        size = -1
        while size != len(self._result_names) + len(self._list_names):
            size = len(self._result_names) + len(self._list_names)
            for name, values in assignments.items():
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
                if function is default and arguments:
                    return self._is_result(arguments[0])
                is_placeholder_function = any(
                    function is candidate for candidate in _PLACEHOLDER_FUNCTIONS
                )
                return is_placeholder_function or self._is_task(called) or self._is_result(called)
            case _:
                return False

    def _is_list(self, expression: ast.expr) -> bool:
        """Returns True for a list whose items are all results, so that a loop yields results."""
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
        """Returns True for `fetch`, `tasks.fetch`, `fetch.options(retries=3)`, `handler("x")`."""
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
        """Returns the object that a global or enclosing name refers to; None if it is unknown."""
        match expression:
            case ast.Name(id=name) if name not in self._local_names:
                return self._outer_names.get(name)
            case ast.Attribute(value=holder, attr=name):
                owner = self._resolve_outer_name(holder)
                return getattr(owner, name, None) if isinstance(owner, ModuleType | type) else None
            case _:
                return None


def iterate_scope(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the node and its descendants, without nested functions and classes."""
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
    """Returns the values assigned to each name; None stands for an unknown value."""
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
    """Yields the names in a target with their values; splits `a, b = f(x), g(x)`."""
    match target, value:
        case ast.Name(id=name), _:
            yield name, value
        case ast.Tuple(elts=targets) | ast.List(elts=targets), ast.Tuple(elts=values) if len(
            targets
        ) == len(values):
            for element, element_value in zip(targets, values, strict=True):
                yield from _iterate_target_names(element, element_value)
        case ast.Tuple(elts=targets) | ast.List(elts=targets), _:
            for element in targets:
                yield from _iterate_target_names(element, None)
        case ast.Starred(value=inner), _:
            yield from _iterate_target_names(inner, None)
        case _:
            return


# Python evaluates these tests without calling a method of the placeholder. So the placeholder can't
# raise TraceError, and `url is None` is always false while a workflow is traced.

_BRANCH_ADVICE = "write task.when(condition)(...), or decide inside a task"
_IS_ADVICE = "write task.when(x == None)(...), or decide inside a task"
_GETATTR_ADVICE = "write runnel.default(x['name'], value), or test inside a task"
_TYPE_FUNCTIONS = frozenset({"isinstance", "issubclass", "type", "callable"})


def check_untraceable_code(function: AnyFunction) -> None:
    """Raises TraceError for the first test in a workflow's body that tracing would get wrong.

    Does nothing if the source code is not available.
    """
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
    """Parses the source of a function; wraps indented source in an `if` block.

    Removing the indentation could change multi-line strings.
    """
    if not source[:1].isspace():
        return ast.parse(source).body[0]
    (wrapper,) = ast.parse(f"if 1:\n{source}").body
    return ast.increment_lineno(wrapper, -1).body[0] if isinstance(wrapper, ast.If) else wrapper


def _find_problems(node: ast.AST, known: KnownResults) -> Iterator[str]:
    if isinstance(node, ast.Try | ast.TryStar):
        if any(map(known.calls_tasks, node.body)):
            yield _describe_try(node)
        return
    for operand, problem in _find_untraceable_tests(node):
        description = known.describe(operand)
        if description is not None:
            yield problem.format(subject=f"{description}, {NOT_YET_AVAILABLE}")


def _describe_try(node: ast.Try | ast.TryStar) -> str:
    action, rule = "cleans up after tasks", "all_settled"
    if node.handlers:
        action, rule = "catches exceptions of tasks", "one_failed"
    return (
        f"{action}, which run only after the workflow function has returned; write "
        f'task.options(run_when="{rule}").after(result)(...), or use try inside a task'
    )


def _find_untraceable_tests(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    match node:
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            if any(isinstance(op, ast.Is | ast.IsNot) for op in ops):
                for operand in (left, *comparators):
                    yield operand, f"uses 'is' on {{subject}}; {_IS_ADVICE}"
        case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in _TYPE_FUNCTIONS:
            yield first, f"tests the type of {{subject}}; {TEST_IN_TASK}"
        case (
            ast.Call(func=ast.Name(id="hasattr"), args=[first, _])
            | ast.Call(func=ast.Name(id="getattr"), args=[first, _, _])
        ):
            yield first, f"tests the attributes of {{subject}}; {_GETATTR_ADVICE}"
        case ast.Match(subject=subject):
            parts = subject.elts if isinstance(subject, ast.Tuple | ast.List) else [subject]
            for operand in parts:
                yield operand, f"branches on {{subject}}; {_BRANCH_ADVICE}"
        case _:
            return
