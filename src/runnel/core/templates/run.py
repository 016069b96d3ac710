"""One evaluation: where its values come from, and how much it may still build."""

from typing import Protocol

from runnel.core.json_types import Json
from runnel.core.templates.failures import TemplateEvaluationError
from runnel.core.templates.limits import BUILT_BYTES_MAX, ITEM_BYTES


class Scope(Protocol):
    """The values that a template may use.

    `lookup` is called only for a root that evaluation really reaches, and each time it is reached;
    it raises MissingValueError(root) when there is no such value. Values are shared, not copied:
    whoever holds a result must not change it.
    """

    def lookup(self, root: str) -> Json:
        """Raises MissingValueError."""


class Run:
    __slots__ = ("_left", "scope")

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._left = BUILT_BYTES_MAX

    def spend(self, built: Json) -> None:
        """Count a new string or list; raises TemplateEvaluationError when it is too much."""
        self._left -= len(built) * (1 if isinstance(built, str) else ITEM_BYTES)
        if self._left < 0:
            raise TemplateEvaluationError(
                f"the texts and lists built here take more than {BUILT_BYTES_MAX:,} bytes "
                "together; compute them in a node and refer to its result"
            )
