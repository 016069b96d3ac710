"""What can't be done with a value that does not exist yet, and how to write it instead."""

import ast
from collections.abc import Callable, Mapping
from typing import TypeAlias

from runnel.authoring.tracing.spots import Spot, here
from runnel.errors import TraceError

Sentence: TypeAlias = Callable[[str, Spot], str]

NOT_YET = "which is not there before the workflow runs"
ASK_LATER = "ask inside a task"
_TESTS = (ast.If, ast.IfExp, ast.While, ast.Assert, ast.BoolOp)
_LOOPS = (ast.For, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def refusal(kind: str, what: str) -> TraceError:
    """`kind` is what was tried, one of SENTENCES; `what` is the value, in words."""
    spot = here()
    return spot.refusal(SENTENCES[kind](what, spot))


def type_refusal(what: str) -> TraceError:
    """Not noted: a debugger asks for types too, and goes on without an answer."""
    return here().refusal(f"asks for the type of {what}, {NOT_YET}; {ASK_LATER}", is_noted=False)


def _truth(what: str, spot: Spot) -> str:
    match next((node for node in reversed(list(spot.nodes())) if _is_test(node)), None):
        case ast.BoolOp(op=op):
            word, sign = ("and", "&") if isinstance(op, ast.And) else ("or", "|")
            return (
                f"needs the truth of {what}, {NOT_YET}; instead of '{word}' write {sign}, with "
                f"brackets around each side: (a > 1) {sign} (b > 2)"
            )
        case ast.UnaryOp():
            return f"needs the truth of {what}, {NOT_YET}; instead of 'not x' write ~x"
        case ast.Compare():
            return f"compares {what} twice, {NOT_YET}; write two comparisons: (1 < x) & (x < 3)"
        case ast.While():
            return f"repeats by {what}, {NOT_YET}; repeat inside a task, or use task.map(list)"
        case _:
            return (
                f"decides by {what}, {NOT_YET}; write task.when(condition)(...) for a task that "
                "runs only then, or decide inside a task"
            )


def _is_test(node: ast.AST) -> bool:
    match node:
        case ast.Compare(ops=[_, _, *_]) | ast.UnaryOp(op=ast.Not()):
            return True
        case _:
            return isinstance(node, _TESTS)


def _iteration(what: str, spot: Spot) -> str:
    around = list(spot.nodes())
    if any(isinstance(node, _LOOPS) for node in around):
        return (
            f"goes through {what}, {NOT_YET}; write task.map(list) for one task of each item, or "
            "loop inside a task"
        )
    if any(isinstance(node, ast.Assign) for node in around):
        return f"takes {what} apart, {NOT_YET}; write result[0], result[1] and so on"
    return f"goes through {what}, {NOT_YET}; pass it on whole, and do this inside a task"


def _always(words: str, instead: str) -> Sentence:
    return lambda what, _: f"{words} {what}, {NOT_YET}; {instead}"


SENTENCES: Mapping[str, Sentence] = {
    "truth": _truth,
    "iteration": _iteration,
    "contains": _always(
        "looks into",
        "look inside a task, or give task.when() a text such as \"'x' in fetch.tags\"",
    ),
    "length": _always(
        "counts", "count inside a task, or give task.when() a text such as 'fetch | length > 3'"
    ),
    "arithmetic": _always("calculates with", "calculate inside a task"),
    "number": _always("needs a number from", "do this inside a task"),
    "text": _always(
        "makes a text of", 'write runnel.text("... {} ...", result), or make it inside a task'
    ),
    "await": _always("awaits", "in a workflow results are passed on as they are: remove 'await'"),
    "call": _always("calls", "call it inside a task: only tasks and workflows are called here"),
    "change": _always("changes", "return a changed copy from a task"),
    "slice": _always("cuts a part out of", "cut inside a task; [0] and [-1] can be written here"),
    "key": _always(
        "looks up by a computed key in", "an index is written out, as in ['name'] or [0]"
    ),
    "context": _always("enters", "use 'with' inside a task"),
}
