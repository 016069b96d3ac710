"""Lists of views: complete lists, pages of long lists, steps of bulk commands, and changes."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Generic, TypeVar

import msgspec
from msgspec import Meta

from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState

T = TypeVar("T")


class Listing(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A complete list."""

    items: Sequence[T]

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A page of a long list."""

    items: Sequence[T]
    next: Annotated[
        str | None,
        Meta(description="The value of `after` for the next page; null after the last page"),
    ]

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)


class BulkFailure(msgspec.Struct, frozen=True, kw_only=True):
    execution_id: ExecutionId
    error: str


class BulkStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a bulk command; `ids` are the cancelled or the new executions."""

    ids: Sequence[ExecutionId] = ()
    known: Annotated[int, Meta(description="Executions that an earlier call has rerun")] = 0
    failed: int = 0
    failures: Annotated[
        Sequence[BulkFailure], Meta(description="The first hundred failures, with the reason")
    ] = ()
    next: Annotated[
        str | None,
        Meta(description="The value of `after` for the next step; null after the last step"),
    ] = None


class ChangeView(msgspec.Struct, frozen=True, kw_only=True):
    """A change of an execution; `status` is the new state, or null if the state has not changed."""

    execution_id: ExecutionId
    status: ExecutionState | None
    position: str


class ChangesPage(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of executions, in order."""

    items: Sequence[ChangeView]
    position: Annotated[str, Meta(description="The value of `after` for the next changes")]
    has_gap: Annotated[
        bool,
        Meta(description="Earlier changes were lost: list the executions again"),
    ]
