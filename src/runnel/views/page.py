"""Lists of views: whole ones, pages of long ones, the steps of bulk commands and changes."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Generic, TypeVar

import msgspec
from msgspec import Meta

from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState

T = TypeVar("T")


class Listing(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """All that there are."""

    items: Sequence[T]

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Part of a long list."""

    items: Sequence[T]
    next: Annotated[str | None, Meta(description="Give this as `after` to get the next page")]

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)


class BulkFailure(msgspec.Struct, frozen=True, kw_only=True):
    execution_id: ExecutionId
    error: str


class BulkStep(msgspec.Struct, frozen=True, kw_only=True):
    """`ids` are what was cancelled, or the new executions."""

    ids: Sequence[ExecutionId] = ()
    known: Annotated[int, Meta(description="Had been rerun so before")] = 0
    failed: int = 0
    failures: Annotated[
        Sequence[BulkFailure], Meta(description="The first hundred, with the reason")
    ] = ()
    next: Annotated[
        str | None, Meta(description="Give this as `after` to go on; null when all is done")
    ] = None


class ChangeView(msgspec.Struct, frozen=True, kw_only=True):
    """`status` is null when only something inside the execution is new."""

    execution_id: ExecutionId
    status: ExecutionState | None
    position: str


class ChangesPage(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of executions, in order."""

    items: Sequence[ChangeView]
    position: Annotated[str, Meta(description="Give this as `after` to get what comes next")]
    has_gap: Annotated[bool, Meta(description="Something is not known any more: list anew")]
