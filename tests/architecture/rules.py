"""The rules for one file: each takes a parsed module and yields one sentence per problem."""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Limits may only go down.
FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 60
POSITIONAL_MAX = 5

# Full names, found under any import alias. A name with a dot at its end bans the whole module.
SLEEPS = {
    "time.sleep": "wait on an event",
    "asyncio.sleep": "wait on an event, or let a Clock do it (asyncio.sleep(0) is fine)",
}
IMPURE = SLEEPS | {
    "datetime.datetime.now": "take a Clock",
    "datetime.datetime.utcnow": "take a Clock",
    "datetime.datetime.today": "take a Clock",
    "datetime.date.today": "take a Clock",
    "time.time": "take a Clock",
    "time.time_ns": "take a Clock",
    "time.monotonic": "take a Clock",
    "time.monotonic_ns": "take a Clock",
    "time.perf_counter": "take a Clock",
    "time.perf_counter_ns": "take a Clock",
    "asyncio.wait_for": "take a Clock and use its timeout",
    "asyncio.timeout": "take a Clock and use its timeout",
    "asyncio.timeout_at": "take a Clock and use its timeout",
    "random.": "take a Random (random.Random(seed) is fine)",
    "uuid.": "take an Ids",
    "secrets.token": "take an Ids",
    "os.urandom": "take an Ids",
}
# Methods of an event loop, banned whatever the loop is called.
LOOP_METHODS = {"call_later": "take a Clock", "call_at": "take a Clock"}
NAMES_REFUSED = frozenset(
    {
        "utils",
        "util",
        "common",
        "helpers",
        "helper",
        "base",
        "manager",
        "misc",
        "parts",
        "means",
        "words",
        "surroundings",
    }
)
BROAD = frozenset(
    {"BaseException", "CancelledError", "Exception", "asyncio.CancelledError", "builtins.Exception"}
)
# Packages of the repository that are not in the wheel.
NOT_SHIPPED = frozenset({"bench", "examples", "simulation", "tests", "tools"})
ASSERTING = ("assert", "check", "expect", "fail", "raises", "warns")

AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One parsed file; `name` is its path below the checked folder."""

    name: str
    text: str
    nodes: Sequence[ast.AST]
    functions: Sequence[AnyFunction]
    calls: Sequence[ast.Call]
    imported: Mapping[str, str]

    @classmethod
    def of(cls, name: str, text: str) -> "Module":
        nodes = tuple(
            ast.walk(ast.parse(text))
        )  # once for all rules, because it takes as long as they do
        return cls(
            name=name,
            text=text,
            nodes=nodes,
            functions=[node for node in nodes if isinstance(node, AnyFunction)],
            calls=[node for node in nodes if isinstance(node, ast.Call)],
            imported=dict(_imported(nodes)),
        )

    def full_name(self, node: ast.AST) -> str | None:
        """Returns the dotted name of an imported object; None for every other node."""
        match node:
            case ast.Name(id=name):
                return self.imported.get(name)
            case ast.Attribute(value=value, attr=attr):
                owner = self.full_name(value)
                return None if owner is None else f"{owner}.{attr}"
            case _:
                return None


Rule = Callable[[Module], Iterator[str]]


def size(module: Module) -> Iterator[str]:
    lines = module.text.count("\n")
    if lines > FILE_LINES_MAX:
        yield f"{lines} lines, at most {FILE_LINES_MAX}: split it by idea"
    for function in module.functions:
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > FUNCTION_LINES_MAX:
            yield f"{function.name}: {length} lines, at most {FUNCTION_LINES_MAX}"


def parameters(module: Module) -> Iterator[str]:
    for function in module.functions:
        names = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]
        count = len([name for name in names if name not in {"self", "cls"}])
        if count > POSITIONAL_MAX:
            yield f"{function.name}: {count} positional parameters: make them keyword-only"


def file_name(module: Module) -> Iterator[str]:
    for part in Path(module.name).with_suffix("").parts:
        if part in NAMES_REFUSED:
            yield f"{part}: name it after the idea that it holds"


def pure(module: Module) -> Iterator[str]:
    yield from _banned(module, IMPURE)
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and node.attr in LOOP_METHODS:
            yield f"line {node.lineno}: {node.attr} banned: {LOOP_METHODS[node.attr]}"


def no_sleep(module: Module) -> Iterator[str]:
    yield from _banned(module, SLEEPS)


def tasks_in_groups(module: Module) -> Iterator[str]:
    """Forbids tasks outside a TaskGroup, because they can be lost with their exception."""
    for call in module.calls:
        if _last_name(call.func) not in {"ensure_future", "create_task"}:
            continue
        name = ast.unparse(call.func)
        owner, _, method = name.rpartition(".")
        if method == "ensure_future" or not owner.endswith(("tg", "group")):
            yield f"line {call.lineno}: {name} banned: start it in a TaskGroup"


def no_assert(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.Assert):
            yield f"line {node.lineno}: assert is removed by -O: raise an error"


def finished(module: Module) -> Iterator[str]:
    for number, line in enumerate(module.text.splitlines(), start=1):
        for word in ("TODO", "FIXME", "XXX", "NotImplementedError"):
            if word in line:
                yield f"line {number}: {word}: finish it or leave it out"


def no_print(module: Module) -> Iterator[str]:
    for call in module.calls:
        if isinstance(call.func, ast.Name) and call.func.id == "print":
            yield f"line {call.lineno}: print banned: log an event"


def imports_on_top(module: Module) -> Iterator[str]:
    has_any = any(
        isinstance(node, ast.Import | ast.ImportFrom) and node.col_offset for node in module.nodes
    )
    for function in module.functions:
        for node in ast.walk(function) if has_any else ():
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield f"line {node.lineno}: an import inside {function.name} hides a cycle"


def shipped(module: Module) -> Iterator[str]:
    for node in module.nodes:
        match node:
            case ast.Import(names=names):
                imported = [alias.name for alias in names]
            case ast.ImportFrom(module=str(source), level=0):
                imported = [source]
            case _:
                continue
        for name in imported:
            if name.partition(".")[0] in NOT_SHIPPED:
                yield f"line {node.lineno}: {name} is not in the wheel"


def nothing_swallowed(module: Module) -> Iterator[str]:
    for node in module.nodes:
        match node:
            case ast.ExceptHandler(type=None):
                yield f"line {node.lineno}: bare except: name what you expect"
            case ast.ExceptHandler(type=ast.expr() as caught, body=body) if _idle(body):
                for name in _broad(caught):
                    yield f"line {node.lineno}: {name} swallowed: name what you expect"
            case ast.Call(func=func, args=caught) if _last_name(func) == "suppress":
                for name in (name for error in caught for name in _broad(error)):
                    yield f"line {node.lineno}: {name} suppressed: name what you expect"
            case _:
                continue


def tests_assert(module: Module) -> Iterator[str]:
    for function in module.functions:
        if function.name.startswith("test_") and not _asserts(function):
            yield f"{function.name} asserts nothing"


def _imported(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    top = alias.name.partition(".")[0]
                    yield (alias.asname, alias.name) if alias.asname else (top, top)
            case ast.ImportFrom(module=str(source), names=names, level=0):
                for alias in names:
                    yield alias.asname or alias.name, f"{source}.{alias.name}"
            case _:
                continue


def _banned(module: Module, table: Mapping[str, str]) -> Iterator[str]:
    harmless = {id(call.func) for call in module.calls if _is_harmless(module, call)}
    for node in module.nodes:
        if not isinstance(node, ast.Name | ast.Attribute) or id(node) in harmless:
            continue
        name = module.full_name(node)
        for banned, hint in table.items():
            if name is not None and _matches(name, banned):
                yield f"line {node.lineno}: {name} banned: {hint}"


def _matches(name: str, banned: str) -> bool:
    return name.startswith(banned) if banned.endswith((".", "token")) else name == banned


def _is_harmless(module: Module, call: ast.Call) -> bool:
    """Returns whether the call is a sleep of zero seconds or a Random with a seed."""
    match call:
        case ast.Call(args=[ast.Constant(value=0)]):
            return module.full_name(call.func) in {"asyncio.sleep", "random.Random"}
        case ast.Call(args=[_]):
            return module.full_name(call.func) == "random.Random"
        case _:
            return False


def _last_name(called: ast.expr) -> str:
    """Returns the last part of a dotted name; an empty string if there is no name."""
    match called:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _broad(caught: ast.expr) -> Iterator[str]:
    for error in caught.elts if isinstance(caught, ast.Tuple) else [caught]:
        name = ast.unparse(error)
        if name in BROAD:
            yield name


def _idle(body: list[ast.stmt]) -> bool:
    return all(_does_nothing(statement) for statement in body)


def _does_nothing(statement: ast.stmt) -> bool:
    match statement:
        case ast.Pass() | ast.Continue() | ast.Break():
            return True
        case ast.Return(value=None | ast.Constant()) | ast.Expr(value=ast.Constant()):
            return True
        case _:
            return False


def _asserts(function: AnyFunction) -> bool:
    return any(
        isinstance(node, ast.Assert)
        or (isinstance(node, ast.Call) and any(word in _last_name(node.func) for word in ASSERTING))
        for node in ast.walk(function)
    )
