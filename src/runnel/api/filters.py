"""Which executions are meant: the same parameters for lists, counts and what is done to many."""

from math import inf

from pydantic import BaseModel, ConfigDict, Field

from runnel.api.models.asked import Named, When
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.errors import InputError
from runnel.ports.archive import ExecutionFilter
from runnel.ports.cursor import Cursor

TEXT_CHARS_MAX = 500
LABELS_MAX = 20


class Chosen(BaseModel):
    """All that is given must be so."""

    model_config = ConfigDict(extra="forbid")

    status: list[Named[ExecutionState]] = Field(default=[], description="Any of these")
    workflow: str | None = Field(default=None, max_length=TEXT_CHARS_MAX)
    label: list[str] = Field(
        default=[],
        max_length=LABELS_MAX,
        description="`key=value`, may be repeated",
        examples=[["customer=acme"]],
    )
    created_from: When | None = None
    created_before: When | None = None
    text: str = Field(
        default="",
        max_length=TEXT_CHARS_MAX,
        description="Part of the id, the workflow, the error or a label's value",
    )
    rerun_of: str | None = Field(default=None, max_length=TEXT_CHARS_MAX)
    parent: str | None = Field(default=None, max_length=TEXT_CHARS_MAX)
    children: bool = Field(default=False, description="Child executions too")

    def to_filter(self, *, limit: int = 50, after: str | None = None) -> ExecutionFilter:
        """Raises InputError."""
        begin, end = self.created_from, self.created_before
        return ExecutionFilter(
            states=tuple(dict.fromkeys(self.status)),
            workflow=self.workflow,
            with_children=self.children,
            labels=dict(map(_label, self.label)),
            created_from=-inf if begin is None else begin.timestamp(),
            created_before=inf if end is None else end.timestamp(),
            text=self.text,
            rerun_of=None if self.rerun_of is None else ExecutionId(self.rerun_of),
            parent=None if self.parent is None else ExecutionId(self.parent),
            after=None if after is None else Cursor(after),
            limit=limit,
        )


class ChosenPage(Chosen):
    limit: int = Field(default=50, ge=1, le=500, description="How many at most")
    after: str | None = Field(
        default=None, max_length=4_000, description="`next` of the previous page"
    )


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InputError(f"label: expected key=value, got '{text}'")
    return key, value
