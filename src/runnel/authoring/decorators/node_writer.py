"""Values with placeholders in them, written down as templates and expressions."""

import itertools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from runnel.authoring.decorators.placeholders import (
    Constant,
    Default,
    Expression,
    Item,
    Key,
    Part,
    Placeholder,
    Result,
    Text,
    choice_of,
    is_plain,
    parts_of,
    path_of,
    root_of,
    trace_of,
)
from runnel.authoring.decorators.source_location import Spot, here, shown_in
from runnel.authoring.documents.fields import written
from runnel.core.templates.nodes import OPERATORS
from runnel.core.templates.parser import NO_ROOTS, OPENING
from runnel.core.validation.checks import DEPTH_MAX, json_problems
from runnel.core.values import Json
from runnel.errors import TraceError

if TYPE_CHECKING:
    from runnel.authoring.decorators.trace import Trace


# Names with which a path can't begin; a node of such a name is nodes['name'].
_NOT_ROOTS = NO_ROOTS | OPERATORS


class Writer:
    """Writes for one node, or for the output; with `is_lenient`, no node has surely a result.

    What then is not there becomes `absent`.

    `what` names the value in messages: "argument 'url' of fetch".
    """

    def __init__(
        self,
        trace: "Trace",
        what: str,
        *,
        is_lenient: bool = False,
        absent: str = "none",
        spot: Callable[[], Spot] = here,
    ) -> None:
        self._trace = trace
        self._what = what
        self._is_lenient = is_lenient
        self._absent = absent
        self._spot = spot

    def about(self, what: str) -> "Writer":
        """For another value of the same node."""
        return Writer(self._trace, what, is_lenient=self._is_lenient)

    def tree(self, value: object, path: str = "", depth: int = 0) -> Json:
        """JSON whose texts hold templates where there were placeholders."""
        if isinstance(value, Text):
            return self._text(parts_of(value))
        if isinstance(value, Placeholder):
            return f"{{{{ {self.source(value)} }}}}"
        if isinstance(value, str):
            return escaped(self.plain(value, path))
        if depth >= DEPTH_MAX:
            raise self._refused(path, f"nested too deeply: at most {DEPTH_MAX} levels")
        if isinstance(value, list | tuple):
            return [self.tree(each, f"{path}[{at}]", depth + 1) for at, each in enumerate(value)]
        if isinstance(value, dict):
            self._check_keys(value, path)
            return {
                key: self.tree(each, f"{path}[{key!r}]", depth + 1) for key, each in value.items()
            }
        return self._constant(value, path)

    def source(self, value: object) -> str:
        """One expression."""
        return self._source(value)[0]

    def _source(self, value: object) -> tuple[str, bool]:
        """And whether it stands by itself, so that no brackets are needed around it."""
        if isinstance(value, Result | Item):
            return self._path(value)
        if isinstance(value, Expression):
            self._check_home(value)
            return "".join(map(self._operand, parts_of(value))), False
        if isinstance(value, Default):
            return self._default(value), False
        if isinstance(value, Text):
            raise self._refused(
                "", "a text with results in it can't be part of an expression; make it in a task"
            )
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(self.source, value))}]", True
        if isinstance(value, dict):
            self._check_keys(value, "")
            pairs = (f"{written(key)}: {self.source(each)}" for key, each in value.items())
            return f"{{{', '.join(pairs)}}}", True
        return written(self._constant(value, "")), True

    def _operand(self, part: Part) -> str:
        if isinstance(part, str):
            return part
        source, is_atom = self._source(part.value if isinstance(part, Constant) else part)
        return source if is_atom else f"({source})"

    def plain(self, text: str, path: str = "") -> str:
        """The same; raises TraceError when it was made of a result."""
        found = shown_in(text)
        if found is not None:
            raise self._refused(
                path,
                f"the text holds {found}, which stands for what is not there yet; write "
                'runnel.text("... {} ...", result), or make the text inside a task',
            )
        return text

    def _text(self, parts: tuple[Part, ...]) -> str:
        """Literal parts are joined first: two of them may be a bracket each."""
        pieces: list[str] = []
        for is_literal, group in itertools.groupby(parts, lambda part: isinstance(part, str)):
            if is_literal:
                pieces.append(escaped(self.plain("".join(map(str, group)))))
                continue
            if pieces and pieces[-1].endswith("{"):
                pieces[-1] = f"{pieces[-1][:-1]}{{{{ '{{' }}}}"
            pieces += map(self._hole, group)
        return "".join(pieces)

    def _hole(self, part: Part) -> str:
        value = part.value if isinstance(part, Constant) else part
        return f"{{{{ {self.source(value)} }}}}"

    def _default(self, value: Default) -> str:
        found, instead = choice_of(value)
        source = self._bare(found) if isinstance(found, Result | Item) else self._operand(found)
        return f"{source} | default({self.source(instead)})"

    def _path(self, value: Placeholder) -> tuple[str, bool]:
        holder = path_of(value)[0]
        may_miss = isinstance(holder, Result) and self._trace.may_miss(
            root_of(holder), is_lenient=self._is_lenient
        )
        return self._bare(value) + (f" | default({self._absent})" if may_miss else ""), not may_miss

    def _bare(self, value: Placeholder) -> str:
        holder, path = path_of(value)
        self._check_home(holder)
        if not isinstance(holder, Result):
            return f"({self.source(holder)}){_steps(path)}"
        root = root_of(holder)
        return (root if is_root(root) else f"nodes[{_quoted(root)}]") + _steps(path)

    def _check_home(self, value: Placeholder) -> None:
        if trace_of(value) is not self._trace:
            raise self._refused(
                "",
                f"it is a result of workflow '{trace_of(value).name}'; pass it as an argument, "
                "or return it from there",
            )

    def _constant(self, value: object, path: str) -> Json:
        wrong = not_json(value)
        if wrong is not None:
            raise self._refused(path, wrong)
        if isinstance(value, str):
            self.plain(value, path)
        for problem in json_problems(value, ""):
            raise self._refused(path, problem)
        return value

    def _check_keys(self, value: dict[object, object], path: str) -> None:
        for key in value:
            if not isinstance(key, str):
                raise self._refused(path, f"the key {key!r} is not a text, as keys of JSON are")
            self.plain(key, path)

    def _refused(self, path: str, problem: str) -> TraceError:
        return self._spot().refusal(f"has a wrong value: {self._what}{path}: {problem}")


def not_json(value: object) -> str | None:
    """What is told about things that only a beginner would pass on; None for all others."""
    kind = getattr(type(value), "__runnel_kind__", None)
    if kind is not None:
        return f"it is the {kind} itself; call it, and pass on what the call returns"
    if hasattr(value, "cr_code"):
        return "it is a coroutine; decorate its function with @task, and call that"
    if callable(value):
        return "it is a function; call it inside a task, or pass on a name"
    return None


def escaped(text: str) -> str:
    """As a template that gives this very text."""
    return OPENING.sub(lambda found: f"{{{{ '{found[0]}' }}}}", text)


def is_root(name: str) -> bool:
    return is_plain(name) and name not in _NOT_ROOTS


def _steps(path: tuple[Key, ...]) -> str:
    return "".join(map(_step, path))


def _step(key: Key) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    return f".{key}" if is_plain(key) else f"[{_quoted(key)}]"


def _quoted(text: str) -> str:
    """In single quotes where that needs no escape, as people write it."""
    is_simple = text.isascii() and text.isprintable() and not set(text) & {"'", "\\"}
    return f"'{text}'" if is_simple else json.dumps(text, ensure_ascii=False)
