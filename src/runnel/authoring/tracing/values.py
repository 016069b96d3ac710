"""What a workflow's body can make of results besides passing them on."""

from string import Formatter
from typing import Any

from runnel.authoring.tracing.callee import Handler, item_of
from runnel.authoring.tracing.placeholders import (
    Constant,
    Default,
    Item,
    Part,
    Placeholder,
    Result,
    Text,
)
from runnel.authoring.tracing.spots import here
from runnel.authoring.tracing.trace import Trace, current
from runnel.core.workflow import SLEEP, WAIT_FOR_SIGNAL
from runnel.errors import InputError

SECRETS = "secrets"


def text(pattern: str, /, *args: Any, **kwargs: Any) -> str:
    """`text("Hello {}!", page["name"])`: as `str.format`, with results that are not there yet.

    Outside of a workflow it is `str.format` itself.
    """
    trace = current()
    if trace is None:
        return pattern.format(*args, **kwargs)
    parts: list[Part] = []
    position = 0
    for literal, name, form, conversion in Formatter().parse(pattern):
        if literal:
            parts.append(literal)
        if name is None:
            continue
        if form or conversion:
            raise here().refusal(
                f"formats '{{{name}}}' in a way that only Python knows; write {{}} alone, or make "
                "the text in a task"
            )
        position += not name
        parts.append(_argument(name or str(position - 1), args, kwargs))
    return Text(trace, tuple(parts))  # type: ignore[return-value]  # a text when it runs


def default(result: Any, value: Any) -> Any:
    """The result, or the value when there is none: its task was skipped, or has no such item."""
    if not isinstance(result, Placeholder):
        return result
    return Default(result, value)


def item() -> Any:
    """What stands for one item inside `handler(...).map(items, …)`."""
    return item_of(_trace("item"))


def secret(name: str) -> Any:
    """What stands for a secret that only the worker knows, in an argument of a task.

    `text("Bearer {}", secret("shop_token"))`: it is never stored, and filled in when the task runs.
    """
    return Item(Result(_trace("secret"), SECRETS), name)


class Sleep(Handler):
    """`sleep(30)`: waits, and occupies no worker meanwhile."""

    def __init__(self) -> None:
        super().__init__(SLEEP)

    def __call__(self, seconds: Any) -> Any:  # type: ignore[override]  # its one setting
        return super().__call__(seconds=seconds)


class WaitForSignal(Handler):
    """`wait_for_signal("approve", timeout=3600)`: gives the signal's payload.

    With `on_timeout="complete"` it gives null when no signal came in time, otherwise it fails.
    """

    def __init__(self) -> None:
        super().__init__(WAIT_FOR_SIGNAL)

    def __call__(  # type: ignore[override]  # its settings by name
        self, signal: Any, *, timeout: Any = None, on_timeout: str | None = None
    ) -> Any:
        settings = {"timeout_seconds": timeout, "on_timeout": on_timeout}
        given = {name: value for name, value in settings.items() if value is not None}
        return super().__call__(signal=signal, **given)


sleep = Sleep()
wait_for_signal = WaitForSignal()
handler = Handler


def _argument(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Part:
    try:
        value = args[int(name)] if name.isdecimal() else kwargs[name]
    except (IndexError, KeyError):
        raise here().refusal(f"has nothing to put into '{{{name}}}'; give it as argument") from None
    if isinstance(value, Placeholder):
        return value
    return str(value) if isinstance(value, str | int | float) else Constant(value)


def _trace(name: str) -> Trace:
    trace = current()
    if trace is None:
        raise InputError(f"runnel.{name} is for the body of a @workflow")
    return trace
