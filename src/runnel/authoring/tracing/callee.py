"""What tasks, workflows and built-in waits share: options, conditions, order, maps."""

import copy
from collections.abc import Mapping
from typing import Any, Self, Unpack

from runnel.authoring.tracing.options import NodeOptions, checked
from runnel.authoring.tracing.placeholders import Placeholder, Result, Text
from runnel.authoring.tracing.spots import here
from runnel.authoring.tracing.trace import NO_MAP, Asked, Trace, current
from runnel.authoring.tracing.writing import Writer
from runnel.core.checks.wording import shown
from runnel.core.json_types import Json
from runnel.core.workflow import Workflow
from runnel.errors import InputError


class Callee:
    """`label` is its name in messages and ids; each change makes a new one."""

    __runnel_kind__ = "task"

    def __init__(self, label: str, handler: str, options: Mapping[str, Any]) -> None:
        self.label = label
        self.handler = handler
        self._options = checked(options, of=label)
        self._conditions: tuple[object, ...] = ()
        self._after: tuple[object, ...] = ()

    def options(self, **options: Unpack[NodeOptions]) -> Self:
        """The same with other options, for one call: `fetch.options(retries=5)(url)`."""
        try:
            new = checked(options, of=self.label)
            self._check_mode(new)
        except InputError as error:
            raise _refused(f"has a wrong option: {error}") from None
        return self._changed(_options={**self._options, **new})

    def after(self, *results: object) -> Self:
        """Runs after these as well, though it takes nothing from them."""
        return self._changed(_after=(*self._after, *results))

    def when(self, condition: object) -> Self:
        """Runs only if the condition holds then, otherwise it is skipped, and its result is None.

        A comparison of results, or a text in the language of `condition` in a document.
        """
        if isinstance(condition, Text) or not isinstance(condition, Placeholder | str | bool):
            raise _refused(
                f"has a wrong condition: {self.label}.when: expected a comparison of results, such "
                f"as page['size'] > 3, got {shown(condition)}"
            )
        return self._changed(_conditions=(*self._conditions, condition))

    def _check_mode(self, options: Mapping[str, Any]) -> None:
        if "mode" in options:
            raise InputError(f"{self.label}: mode: only functions have one; remove it")

    def _changed(self, **fields: object) -> Self:
        changed = copy.copy(self)
        vars(changed).update(fields)
        return changed

    def _add(
        self,
        trace: Trace,
        given: Mapping[str, Any],
        *,
        items: object = NO_MAP,
        child: Workflow | None = None,
    ) -> Result:
        asked = Asked(
            label=self.label,
            handler=self.handler,
            options=self._options,
            conditions=tuple(
                str(each).lower() if isinstance(each, bool) else each for each in self._conditions
            ),
            after=self._after,
            child=child,
        )
        return trace.call(asked, lambda writer: self._config(writer, given), items)

    def _config(self, writer: Writer, given: Mapping[str, Any]) -> dict[str, Json]:
        """The arguments as the handler's settings."""
        return self._written(writer, given)

    def _written(self, writer: Writer, given: Mapping[str, Any]) -> dict[str, Json]:
        return {
            name: writer.about(f"argument '{name}' of {self.label}").tree(value)
            for name, value in given.items()
        }

    def _trace_of_map(self) -> Trace:
        trace = current()
        if trace is None:
            raise InputError(
                f"{self.label}.map: maps are made inside a @workflow; elsewhere write "
                f"[{self.label}(item) for item in items]"
            )
        return trace


def _refused(problem: str) -> InputError:
    """With its line when it is one of a workflow."""
    return InputError(problem) if current() is None else here().refusal(problem)


class Handler(Callee):
    """`handler("resize")(width=3)`: a node of a handler that is known by its name."""

    def __init__(self, name: str, /, **options: Unpack[NodeOptions]) -> None:
        super().__init__(name, name, options)
        self._check_mode(self._options)

    def __call__(self, **config: Any) -> Any:
        """Its config; what it will give."""
        trace = current()
        if trace is None:
            raise InputError(f"{self.label}: this handler is called inside a @workflow only")
        return self._add(trace, config)

    def map(self, items: Any, **config: Any) -> list[Any]:
        """One task for each item, which `runnel.item` stands for in the config."""
        trace = self._trace_of_map()
        return self._add(trace, config, items=items)  # type: ignore[return-value]  # a list when it runs


def item_of(trace: Trace) -> Placeholder:
    """What stands for one item of a map."""
    return Result(trace, "item")
