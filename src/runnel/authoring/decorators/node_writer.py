"""Writes values that contain placeholders as templates and expressions of a node."""

import itertools
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from runnel.authoring.decorators.placeholders import (
    Constant,
    DefaultPlaceholder,
    ExpressionPart,
    ExpressionPlaceholder,
    ItemPlaceholder,
    PathKey,
    Placeholder,
    ResultPlaceholder,
    Text,
    get_parts,
    get_root,
    get_trace,
    get_value_and_default,
    is_identifier,
    replaces_null,
    split_path,
)
from runnel.authoring.decorators.source_location import (
    NOT_YET_AVAILABLE,
    SourceLocation,
    find_shown_text,
    locate_user_code,
)
from runnel.authoring.documents.fields import format_literal
from runnel.authoring.storable_values import get_stored_fields, to_json
from runnel.core.templates.nodes import OPERATOR_WORDS
from runnel.core.templates.parser import NON_ROOT_WORDS, OPENING_PATTERN
from runnel.core.validation.checks import DEPTH_MAX, find_json_problems
from runnel.core.values import Json
from runnel.errors import TraceError

if TYPE_CHECKING:
    from runnel.authoring.decorators.trace import Trace


# A path can't begin with these words. A node with such a name is written as nodes['name'].
_RESERVED_ROOTS = NON_ROOT_WORDS | OPERATOR_WORDS


class TemplateWriter:
    """Writes the values of one node, or the output of the workflow, as templates and expressions.

    `subject` names the value in messages: "argument 'url' of fetch". `is_lenient` is True for a
    node that runs even if other nodes failed: any result that the node reads may be missing.
    `absent` is the expression that replaces a missing result.
    """

    def __init__(
        self,
        trace: "Trace",
        subject: str,
        *,
        is_lenient: bool = False,
        absent: str = "none",
        locate: Callable[[], SourceLocation] = locate_user_code,
    ) -> None:
        self._trace = trace
        self._subject = subject
        self._is_lenient = is_lenient
        self._absent = absent
        self._locate = locate

    def with_subject(self, subject: str) -> "TemplateWriter":
        """Returns a writer for another value of the same node."""
        return TemplateWriter(self._trace, subject, is_lenient=self._is_lenient)

    def write_tree(self, value: object, path: str = "", depth: int = 0) -> Json:
        """Returns the value as JSON, with templates in place of placeholders; raises TraceError."""
        if isinstance(value, Text):
            return self._write_text(get_parts(value))
        if isinstance(value, Placeholder):
            return f"{{{{ {self.write_expression(value)} }}}}"
        value = self._to_json_parts(value, path)
        if isinstance(value, str):
            return escape_template(self.check_plain_text(value, path))
        if depth >= DEPTH_MAX:
            raise self._build_error(
                path, f"nested too deeply; at most {DEPTH_MAX} levels are allowed"
            )
        if isinstance(value, list | tuple):
            return [
                self.write_tree(item, f"{path}[{index}]", depth + 1)
                for index, item in enumerate(value)
            ]
        if isinstance(value, dict):
            self._check_keys(value, path)
            return {
                key: self.write_tree(item, f"{path}[{key!r}]", depth + 1)
                for key, item in value.items()
            }
        return self._check_constant(value, path)

    def write_expression(self, value: object) -> str:
        """Returns the value as one expression without surrounding braces; raises TraceError."""
        return self._write_expression(value)[0]

    def _write_expression(self, value: object) -> tuple[str, bool]:
        """Returns the expression, and whether it can be an operand without brackets."""
        if not isinstance(value, Placeholder):
            value = self._to_json_parts(value, "")
        if isinstance(value, ResultPlaceholder | ItemPlaceholder):
            return self._write_path(value)
        if isinstance(value, ExpressionPlaceholder):
            self._check_same_trace(value)
            return "".join(map(self._write_operand, get_parts(value))), False
        if isinstance(value, DefaultPlaceholder):
            return self._write_default(value), False
        if isinstance(value, Text):
            raise self._build_error(
                "", "runnel.text(...) can't be part of an expression; build the text inside a task"
            )
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(self.write_expression, value))}]", True
        if isinstance(value, dict):
            self._check_keys(value, "")
            pairs = (
                f"{format_literal(key)}: {self.write_expression(item)}"
                for key, item in value.items()
            )
            return f"{{{', '.join(pairs)}}}", True
        return format_literal(self._check_constant(value, "")), True

    def _write_operand(self, part: ExpressionPart) -> str:
        if isinstance(part, str):
            return part
        source, is_atom = self._write_expression(part.value if isinstance(part, Constant) else part)
        return source if is_atom else f"({source})"

    def check_plain_text(self, text: str, path: str = "") -> str:
        """Returns the text; raises TraceError if it contains the repr of a placeholder."""
        placeholder_text = find_shown_text(text)
        if placeholder_text is not None:
            raise self._build_error(
                path,
                f"the text contains {placeholder_text}, {NOT_YET_AVAILABLE}; write "
                'runnel.text("... {} ...", result), or build the text inside a task',
            )
        return text

    def _write_text(self, parts: tuple[ExpressionPart, ...]) -> str:
        """Returns the template of a text.

        Adjacent literal parts are joined first, because two of them may form a template bracket.
        """
        pieces: list[str] = []
        for is_literal, group in itertools.groupby(parts, lambda part: isinstance(part, str)):
            if is_literal:
                pieces.append(escape_template(self.check_plain_text("".join(map(str, group)))))
                continue
            if pieces and pieces[-1].endswith("{"):
                pieces[-1] = f"{pieces[-1][:-1]}{{{{ '{{' }}}}"
            pieces += map(self._write_template, group)
        return "".join(pieces)

    def _write_template(self, part: ExpressionPart) -> str:
        value = part.value if isinstance(part, Constant) else part
        return f"{{{{ {self.write_expression(value)} }}}}"

    def _write_default(self, value: DefaultPlaceholder) -> str:
        inner, fallback = get_value_and_default(value)
        source = (
            self._write_bare_path(inner)
            if isinstance(inner, ResultPlaceholder | ItemPlaceholder)
            else self._write_operand(inner)
        )
        if fallback is None or not replaces_null(value):
            return f"{source} | default({self.write_expression(fallback)})"
        is_missing = f"({source} | default(none)) is none"
        part = fallback if isinstance(fallback, Placeholder) else Constant(fallback)
        return f"{self._write_operand(part)} if {is_missing} else {source}"

    def _write_path(self, value: Placeholder) -> tuple[str, bool]:
        holder = split_path(value)[0]
        path = self._write_bare_path(value)
        if (
            self._is_lenient
            and isinstance(holder, ResultPlaceholder)
            and self._trace.has_node(get_root(holder))
        ):
            return f"{path} | default({self._absent})", False
        return path, True

    def _write_bare_path(self, value: Placeholder) -> str:
        holder, path = split_path(value)
        self._check_same_trace(holder)
        if not isinstance(holder, ResultPlaceholder):
            return f"({self.write_expression(holder)}){_format_path(path)}"
        root = get_root(holder)
        return (root if is_root_name(root) else f"nodes[{_quote(root)}]") + _format_path(path)

    def _check_same_trace(self, value: Placeholder) -> None:
        if get_trace(value) is not self._trace:
            raise self._build_error(
                "",
                f"the value is a result of another workflow, '{get_trace(value).name}'; pass it as "
                "an argument, or return it from that workflow",
            )

    def _to_json_parts(self, value: object, path: str) -> object:
        """Returns a value of a Python type as JSON; its fields may contain placeholders.

        Returns any other value unchanged. Raises TraceError if JSON can't hold the value.
        """
        if type(value) in _JSON_TYPES or describe_non_json(value) is not None:
            return value
        fields = get_stored_fields(value)
        if fields is not None:
            return fields
        if isinstance(value, Mapping):
            return {_to_key(key): item for key, item in value.items()}
        if isinstance(value, list | tuple):
            return list(value)
        if isinstance(value, set | frozenset) and any(isinstance(i, Placeholder) for i in value):
            return value  # its order would differ from trace to trace
        try:
            return to_json(value)
        except (TypeError, ValueError, OverflowError, RecursionError):
            return value  # the check of constants describes the problem

    def _check_constant(self, value: object, path: str) -> Json:
        misuse = describe_non_json(value)
        if misuse is not None:
            raise self._build_error(path, misuse)
        if isinstance(value, str):
            self.check_plain_text(value, path)
        for problem in find_json_problems(value, ""):
            raise self._build_error(path, problem)
        return value

    def _check_keys(self, value: dict[object, object], path: str) -> None:
        for key in value:
            if not isinstance(key, str):
                raise self._build_error(path, f"the key {key!r} is not a text; JSON keys are texts")
            self.check_plain_text(key, path)

    def _build_error(self, path: str, problem: str) -> TraceError:
        return self._locate().build_error(f"has an invalid value: {self._subject}{path}: {problem}")


_JSON_TYPES = (str, int, float, bool, type(None))


def _to_key(key: object) -> object:
    """Returns the key of a dict as JSON has it; the key itself if it is not a key of JSON."""
    if type(key) is str or isinstance(key, Placeholder) or key is None or isinstance(key, bool):
        return key
    try:
        return next(iter(to_json({key: None})))
    except (TypeError, ValueError, OverflowError):
        return key


def describe_non_json(value: object) -> str | None:
    """Returns the problem of a task, a function or a coroutine; None for all other values."""
    kind = getattr(type(value), "__runnel_kind__", None)
    if kind is not None:
        return f"the value is the {kind} itself; call it, and pass the result of the call"
    if hasattr(value, "cr_code"):
        return "the value is a coroutine; decorate its function with @task, and call the task"
    if callable(value):
        return "the value is a function; call it inside a task, or pass its name as text"
    return None


def escape_template(text: str) -> str:
    """Returns a template that evaluates to exactly this text."""
    return OPENING_PATTERN.sub(lambda match: f"{{{{ '{match[0]}' }}}}", text)


def is_root_name(name: str) -> bool:
    return is_identifier(name) and name not in _RESERVED_ROOTS


def _format_path(path: tuple[PathKey, ...]) -> str:
    return "".join(map(_format_key, path))


def _format_key(key: PathKey) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    return f".{key}" if is_identifier(key) else f"[{_quote(key)}]"


def _quote(text: str) -> str:
    """Quotes a text for an expression, in single quotes if that needs no escapes."""
    is_simple = text.isascii() and text.isprintable() and not set(text) & {"'", "\\"}
    return f"'{text}'" if is_simple else json.dumps(text, ensure_ascii=False)
