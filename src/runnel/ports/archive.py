"""The archive of a backend: definitions, executions to list and read, dead letters, retention."""

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from math import inf, isfinite
from typing import NewType, Protocol, TypeAlias

import msgspec

from runnel.core.effects import DeadLetter
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.states import ExecutionState
from runnel.errors import InputError
from runnel.ports.store import ExecutionHeader

# -- cursors: where a page of executions ended, as a text that callers keep and give back --
# Newest first, by (created_at, id): the place stays what it is when the execution there is
# deleted, and nothing that begins later moves it.

PageCursor = NewType("PageCursor", str)
"""Opaque: what it is made of may change; one of an earlier version is refused then."""
PagePosition: TypeAlias = tuple[float, str]

NEWEST_POSITION: PagePosition = (inf, "")
"""Before everything."""

_CURSOR_CHARS_MAX = 4_000
_decode = msgspec.json.Decoder(tuple[float, str]).decode


def encode_cursor(position: PagePosition) -> PageCursor:
    data = base64.urlsafe_b64encode(msgspec.json.encode(position))
    return PageCursor(data.decode().rstrip("="))


def decode_cursor(cursor: str) -> PagePosition:
    """Raises InputError for a text that no page has given."""
    try:
        if len(cursor) > _CURSOR_CHARS_MAX:
            raise ValueError
        padded = cursor + "=" * (-len(cursor) % 4)
        place = _decode(base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True))
        if not isfinite(place[0]):
            raise ValueError
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise InputError("the place in a list: expected what the page before it gave") from error
    return place


SCANNED_EXECUTIONS_MAX = 10_000
"""So many executions are looked at for one page, or for one count of a state."""


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    hash: DefinitionHash
    name: str
    version: int
    document: bytes


class ExecutionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """All that is given must be so. `after` is what the page before this one gave as `next`.

    `created_from` belongs to the span, `created_before` does not. `text` is part of an id, of the
    workflow's name, of a label's value or of the error, in capital letters or not. `parent` finds
    child executions, whatever `with_children` says.
    """

    states: tuple[ExecutionState, ...] = ()
    workflow: str | None = None
    with_children: bool = False
    labels: Mapping[str, str] = {}
    created_from: float = -inf
    created_before: float = inf
    text: str = ""
    rerun_of: ExecutionId | None = None
    parent: ExecutionId | None = None
    after: PageCursor | None = None
    limit: int = 50


ALL_EXECUTIONS = ExecutionFilter()


class HeaderPage(msgspec.Struct, frozen=True, kw_only=True):
    """`next` is None when there are no more.

    There may be fewer than were asked for, or none, and yet more behind: after LOOKED_MAX
    executions that are not wanted, the caller says whether to go on.
    """

    headers: Sequence[ExecutionHeader]
    next: PageCursor | None = None

    def __iter__(self) -> Iterator[ExecutionHeader]:
        return iter(self.headers)


class ExecutionCount(msgspec.Struct, frozen=True, kw_only=True):
    """At least so many if it `is_least`: counting went no further."""

    number: int = 0
    is_least: bool = False


class DeadLetterFilter(msgspec.Struct, frozen=True, kw_only=True):
    """`execution` is the beginning of an execution's id; `before` is a time of rejection.

    `after` is the last letter of the previous page (newest first), whether it still is there or
    not.
    """

    queue: str | None = None
    workflow: str | None = None
    execution: str = ""
    before: float = inf
    after: DeadLetter | None = None
    limit: int = 50


ALL_DEAD_LETTERS = DeadLetterFilter()


class Archive(Protocol):
    async def put_definition(self, name: str, hash_: DefinitionHash, document: bytes) -> int:
        """The version: the stored one for known content, the next for changed content.

        Content that was deleted is not known.
        """

    async def get_definition(self, hash_: DefinitionHash) -> Definition | None:
        """Also of a version that was deleted: executions need it."""

    async def delete_versions(self, name: str) -> int:
        """How many there were; from now on none is found by this name, until the next is put.

        That one's version is higher than all before.
        """

    async def list_workflows(self, *, after: str = "", limit: int = 50) -> Sequence[Definition]:
        """The newest version of each, by name; `after` is the last name of the previous page."""

    async def list_versions(self, name: str, *, limit: int = 50) -> Sequence[Definition]:
        """Newest first; empty for a name that no workflow has."""

    async def find_version(self, name: str, version: int) -> Definition | None: ...

    async def get_header(self, execution_id: ExecutionId) -> ExecutionHeader | None: ...

    async def get_headers(
        self, ids: Sequence[ExecutionId]
    ) -> Mapping[ExecutionId, ExecutionHeader]:
        """Of those that are known; as one call where a call is dear."""

    async def load(self, execution_id: ExecutionId, *, after: int = 0) -> Sequence[bytes]:
        """Its history entries in order, whether it runs or ended long ago; empty without any.

        Those behind the first `after`, for who has read so many: only the others are read then.
        """

    async def list_headers(self, criteria: ExecutionFilter) -> HeaderPage:
        """Newest first, by (created_at, id); raises InputError for an `after` that is none."""

    async def count_headers(
        self, criteria: ExecutionFilter = ALL_EXECUTIONS
    ) -> Mapping[ExecutionState, ExecutionCount]:
        """Of each wanted state, or of all, whatever `limit` and `after` say."""

    async def find_ids(self, prefix: str, *, limit: int = 2) -> Sequence[ExecutionId]:
        """Executions whose id begins so, by id: people type the first characters.

        A prefix without a dot finds roots only: the ids of all children begin with their root's.
        """

    async def list_dead_letters(
        self, criteria: DeadLetterFilter = ALL_DEAD_LETTERS
    ) -> Sequence[DeadLetter]:
        """Newest first; of those rejected in the same moment, by their bytes, backwards."""

    async def count_dead_letters(self, criteria: DeadLetterFilter = ALL_DEAD_LETTERS) -> int:
        """All that are wanted, whatever `limit` and `after` say."""

    async def delete_dead_letters(self, letters: Sequence[DeadLetter]) -> int:
        """How many of them were there; they are gone from all places that keep letters."""


class Retention(Protocol):
    """Deletes executions that have ended, and blobs that nothing refers to."""

    async def delete_finished(self, state: ExecutionState, *, before: float, limit: int) -> int:
        """Deletes root executions that ended in this state before then, with all their children.

        At most `limit`, the oldest first, and none of which a child still runs; returns how many.
        """

    async def delete_orphaned_blobs(self, *, idle_s: float) -> int:
        """Deletes blobs whose execution there is not, and which were not touched for so long.

        What a process has left that died before its command was stored; returns how many.
        """
