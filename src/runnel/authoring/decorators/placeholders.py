"""Placeholders stand for inputs and results while the body of a workflow is traced."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias

from runnel.authoring.decorators.member_types import (
    MemberError,
    find_comparison_problem,
    find_member,
)
from runnel.authoring.decorators.source_location import (
    build_misuse_error,
    build_type_error,
    is_called_by_user,
    locate_user_code,
    record_shown_text,
)

if TYPE_CHECKING:
    from runnel.authoring.decorators.trace import Trace


PathKey: TypeAlias = str | int
ExpressionPart: TypeAlias = "str | Placeholder | Constant"

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Constant:
    """A plain value inside an expression."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


class Placeholder:
    """Base class of values that exist only when the workflow runs.

    A placeholder has no public attributes, because `page.title` means the item 'title'.
    Comparisons and `&`, `|`, `~` build expressions. All other operations raise TraceError.
    `annotation` is the type of the value; None if the type is not known.
    """

    __slots__ = ("_annotation", "_trace")

    def __init__(self, trace: "Trace", annotation: Any = None) -> None:
        object.__setattr__(self, "_trace", trace)
        object.__setattr__(self, "_annotation", annotation)

    @property  # type: ignore[misc]  # isinstance reads this if the type does not match
    def __class__(self) -> type:
        """Returns the type of the placeholder for libraries; raises TraceError for user code.

        User code wants to know the type of the value, which does not exist yet.
        """
        if is_called_by_user():
            raise build_type_error(describe_placeholder(self))
        return type(self)

    def __eq__(self, other: object) -> "ExpressionPlaceholder":  # type: ignore[override]  # the result is an expression
        return _compare(self, "==", other)

    def __ne__(self, other: object) -> "ExpressionPlaceholder":  # type: ignore[override]  # the result is an expression
        return _compare(self, "!=", other)

    def __lt__(self, other: object) -> "ExpressionPlaceholder":
        return _compare(self, "<", other)

    def __le__(self, other: object) -> "ExpressionPlaceholder":
        return _compare(self, "<=", other)

    def __gt__(self, other: object) -> "ExpressionPlaceholder":
        return _compare(self, ">", other)

    def __ge__(self, other: object) -> "ExpressionPlaceholder":
        return _compare(self, ">=", other)

    def __and__(self, other: object) -> "ExpressionPlaceholder":
        _check_not_bitwise(self, other)
        return ExpressionPlaceholder(get_trace(self), (self, " and ", _to_part(other)))

    def __rand__(self, other: object) -> "ExpressionPlaceholder":
        _check_not_bitwise(self, other)
        return ExpressionPlaceholder(get_trace(self), (_to_part(other), " and ", self))

    def __or__(self, other: object) -> "ExpressionPlaceholder":
        return ExpressionPlaceholder(get_trace(self), (self, " or ", _to_part(other)))

    def __ror__(self, other: object) -> "ExpressionPlaceholder":
        return ExpressionPlaceholder(get_trace(self), (_to_part(other), " or ", self))

    def __invert__(self) -> "ExpressionPlaceholder":
        return ExpressionPlaceholder(get_trace(self), ("not ", self))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        """Returns the immutable placeholder itself; `dataclasses.asdict` makes deep copies."""
        return self

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        text = f"<{describe_placeholder(self)}>"
        record_shown_text(text)
        return text

    def __getattr__(self, name: str) -> "Placeholder":
        # copy, inspect and debuggers read names that begin with _, which are not items.
        if name.startswith("_"):
            raise AttributeError(name)
        return _get_member(self, name)

    def __getitem__(self, key: object) -> "Placeholder":
        if isinstance(key, slice):
            raise build_misuse_error("slice", describe_placeholder(self))
        if isinstance(key, bool) or not isinstance(key, str | int):
            raise build_misuse_error("key", describe_placeholder(self))
        return _get_member(self, key)


class ResultPlaceholder(Placeholder):
    """The result of the node `root`.

    The roots `input`, `item` and `secrets` are the input, the current item of a map, and the
    secrets of the worker.
    """

    __slots__ = ("_root",)

    def __init__(self, trace: "Trace", root: str, annotation: Any = None) -> None:
        super().__init__(trace, annotation)
        object.__setattr__(self, "_root", root)


class ItemPlaceholder(Placeholder):
    """An item of another placeholder: `page["title"]` or `page.title`."""

    __slots__ = ("_holder", "_key")

    def __init__(self, holder: Placeholder, key: PathKey, annotation: Any = None) -> None:
        super().__init__(get_trace(holder), annotation)
        object.__setattr__(self, "_holder", holder)
        object.__setattr__(self, "_key", key)


class ExpressionPlaceholder(Placeholder):
    """A comparison, or an `and`, `or` or `not` of placeholders."""

    __slots__ = ("_parts",)

    def __init__(self, trace: "Trace", parts: tuple[ExpressionPart, ...]) -> None:
        super().__init__(trace)
        object.__setattr__(self, "_parts", parts)


class DefaultPlaceholder(Placeholder):
    """A placeholder with a default, which replaces a missing value, or also null."""

    __slots__ = ("_default", "_replaces_null", "_value")

    def __init__(self, value: Placeholder, default: object, *, replaces_null: bool = False) -> None:
        super().__init__(get_trace(value), get_annotation(value))
        object.__setattr__(self, "_replaces_null", replaces_null)
        object.__setattr__(self, "_value", value)
        object.__setattr__(self, "_default", default)


class Text(Placeholder):
    """The result of `runnel.text`: a text that contains placeholders."""

    __slots__ = ("_parts",)

    def __init__(self, trace: "Trace", parts: tuple[ExpressionPart, ...]) -> None:
        super().__init__(trace)
        object.__setattr__(self, "_parts", parts)


def get_trace(placeholder: Placeholder) -> "Trace":
    trace: Trace = object.__getattribute__(placeholder, "_trace")
    return trace


def get_annotation(placeholder: Placeholder) -> Any:
    return object.__getattribute__(placeholder, "_annotation")


def _get_member(placeholder: Placeholder, key: PathKey) -> Placeholder:
    """Returns the part of a value that is stored under the key, or in the field of that name."""
    try:
        member = find_member(get_annotation(placeholder), key)
    except MemberError as error:
        raise locate_user_code().build_error(
            f"reads '{key}' of {describe_placeholder(placeholder)}, but '{key}' {error}; read it "
            "inside a task"
        ) from None
    if member.key is None:
        return _copy_with_annotation(placeholder, member.annotation)
    return ItemPlaceholder(placeholder, member.key, member.annotation)


def _copy_with_annotation(placeholder: Placeholder, annotation: Any) -> Placeholder:
    copied = object.__new__(type(placeholder))
    for kind in type(placeholder).__mro__:
        for name in getattr(kind, "__slots__", ()):
            object.__setattr__(copied, name, object.__getattribute__(placeholder, name))
    object.__setattr__(copied, "_annotation", annotation)
    return copied


def get_parts(placeholder: ExpressionPlaceholder | Text) -> tuple[ExpressionPart, ...]:
    parts: tuple[ExpressionPart, ...] = object.__getattribute__(placeholder, "_parts")
    return parts


def get_value_and_default(placeholder: DefaultPlaceholder) -> tuple[Placeholder, object]:
    value: Placeholder = object.__getattribute__(placeholder, "_value")
    return value, object.__getattribute__(placeholder, "_default")


def replaces_null(placeholder: DefaultPlaceholder) -> bool:
    return bool(object.__getattribute__(placeholder, "_replaces_null"))


def get_root(placeholder: ResultPlaceholder) -> str:
    return str(object.__getattribute__(placeholder, "_root"))


def split_path(item: Placeholder) -> tuple[Placeholder, tuple[PathKey, ...]]:
    """Returns the outermost placeholder, and the keys that lead from it to `item`."""
    keys: list[PathKey] = []
    while isinstance(item, ItemPlaceholder):
        keys.append(object.__getattribute__(item, "_key"))
        item = object.__getattribute__(item, "_holder")
    return item, tuple(reversed(keys))


def describe_placeholder(placeholder: Placeholder) -> str:
    """Describes a placeholder for messages: "the result 'fetch.title'"."""
    holder, path = split_path(placeholder)
    while isinstance(holder, DefaultPlaceholder):
        holder, outer_path = split_path(get_value_and_default(holder)[0])
        path = (*outer_path, *path)
    if isinstance(holder, ResultPlaceholder):
        root = get_root(holder)
        if root == "input" and path:
            return f"the input '{path[0]}{''.join(map(_format_key, path[1:]))}'"
        if root == "secrets" and path:
            return f"the secret '{path[0]}'"
        return f"the result '{root}{''.join(map(_format_key, path))}'"
    if isinstance(holder, Text):
        return "a text that contains results"
    return "an expression of inputs" if _has_only_inputs(holder) else "an expression of results"


def _has_only_inputs(placeholder: Placeholder) -> bool:
    """Returns True if an expression reads the input of the workflow, and no result of a task."""
    holder = split_path(placeholder)[0]
    if isinstance(holder, DefaultPlaceholder):
        return _has_only_inputs(get_value_and_default(holder)[0])
    if isinstance(holder, ExpressionPlaceholder):
        parts = [part for part in get_parts(holder) if isinstance(part, Placeholder)]
        return all(map(_has_only_inputs, parts))
    return isinstance(holder, ResultPlaceholder) and get_root(holder) == "input"


def _format_key(key: PathKey) -> str:
    return f".{key}" if isinstance(key, str) and is_identifier(key) else f"[{key!r}]"


def is_identifier(name: str) -> bool:
    return _IDENTIFIER.fullmatch(name) is not None


def _to_part(value: object) -> ExpressionPart:
    return value if isinstance(value, Placeholder) else Constant(value)


def _check_not_bitwise(placeholder: Placeholder, other: object) -> None:
    """Raises TraceError for `flags & 4`: `&` with an integer is bit arithmetic, not logic."""
    if isinstance(other, int) and not isinstance(other, bool):
        raise build_misuse_error("arithmetic", describe_placeholder(placeholder))


def _compare(left: Placeholder, sign: str, right: object) -> ExpressionPlaceholder:
    for operand in (left, right):
        if isinstance(operand, Placeholder) and right is not None:
            problem = find_comparison_problem(get_annotation(operand), sign)
            if problem is not None:
                raise locate_user_code().build_error(f"{problem}; compare it inside a task")
    return ExpressionPlaceholder(get_trace(left), (left, f" {sign} ", _to_part(right)))


def _make_refusing_method(kind: str) -> Callable[..., NoReturn]:
    def refuse(self: Placeholder, *_: Any) -> NoReturn:
        raise build_misuse_error(kind, describe_placeholder(self))

    return refuse


_REFUSED_METHODS = {
    "truth": ["__bool__"],
    "iteration": ["__iter__", "__reversed__"],
    "contains": ["__contains__"],
    "length": ["__len__"],
    "number": ["__index__", "__int__", "__float__", "__complex__", "__round__", "__trunc__"],
    "text": ["__str__", "__format__", "__bytes__", "__fspath__"],
    "await": ["__await__"],
    "call": ["__call__"],
    "change": ["__setitem__", "__delitem__", "__setattr__", "__delattr__"],
    "context": ["__enter__", "__exit__", "__aenter__", "__aexit__"],
    "arithmetic": [
        *("__neg__", "__pos__", "__abs__", "__divmod__", "__rdivmod__"),
        *(
            f"__{side}{name}__"
            for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
            for side in ("", "r")
        ),
        *(f"__{side}{name}__" for name in ("lshift", "rshift", "xor") for side in ("", "r")),
    ],
}
for _kind, _names in _REFUSED_METHODS.items():
    for _name in _names:
        setattr(Placeholder, _name, _make_refusing_method(_kind))
