"""The archive port: workflow definitions, lists and histories of executions, dead letters,
retention.
"""

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

# -- cursors: the position at which a page of executions ended, as an opaque text --------------
# Executions are sorted newest first, by (created_at, id). A position stays valid after its
# execution is deleted. Executions that are created later do not shift a position.

PageCursor = NewType("PageCursor", str)
"""An opaque text that encodes a position.

After a change of the format, Runnel refuses older cursors.
"""
PagePosition: TypeAlias = tuple[float, str]

NEWEST_POSITION: PagePosition = (inf, "")
"""The position before the newest execution."""

_CURSOR_CHARS_MAX = 4_000
_decode = msgspec.json.Decoder(tuple[float, str]).decode


def encode_cursor(position: PagePosition) -> PageCursor:
    data = base64.urlsafe_b64encode(msgspec.json.encode(position))
    return PageCursor(data.decode().rstrip("="))


def decode_cursor(cursor: str) -> PagePosition:
    """Returns the position that a cursor encodes.

    Raises InputError if the text is not a valid cursor.
    """
    try:
        if len(cursor) > _CURSOR_CHARS_MAX:
            raise ValueError
        padded = cursor + "=" * (-len(cursor) % 4)
        position = _decode(base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True))
        if not isfinite(position[0]):
            raise ValueError
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise InputError(
            "the cursor of a list is not valid: pass the `next` value of the previous page"
        ) from error
    return position


SCANNED_EXECUTIONS_MAX = 10_000
"""The most executions that a backend scans for one page, or for the count of one state."""


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    hash: DefinitionHash
    name: str
    version: int
    document: bytes


class ExecutionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects executions. An execution must match every field that is set.

    `created_from` is inclusive, `created_before` is exclusive. `text` must occur in the id, the
    workflow's name, a label's value or the error; case is ignored. `parent` selects the children of
    an execution, even if `with_children` is False. `after` is the `next` of the previous page.
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
    """A page of execution headers. `next` is None on the last page.

    A page may hold fewer headers than `limit`, or none, although more pages follow. A backend stops
    once it has scanned SCANNED_EXECUTIONS_MAX executions that do not match. The caller decides
    whether to read a further page.
    """

    headers: Sequence[ExecutionHeader]
    next: PageCursor | None = None

    def __iter__(self) -> Iterator[ExecutionHeader]:
        return iter(self.headers)


class ExecutionCount(msgspec.Struct, frozen=True, kw_only=True):
    """A number of executions.

    If `is_least`, the backend stopped counting at `number`, and the actual number may be higher.
    """

    number: int = 0
    is_least: bool = False


class DeadLetterFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects dead letters. `execution` is the beginning of an execution id.

    `before` is the exclusive upper limit of the time of rejection. `after` is the last letter of
    the previous page, even if that letter was deleted since. Pages are sorted newest first.
    """

    queue: str | None = None
    workflow: str | None = None
    execution: str = ""
    before: float = inf
    after: DeadLetter | None = None
    limit: int = 50


ALL_DEAD_LETTERS = DeadLetterFilter()


class Archive(Protocol):
    """The client's interface to definitions, execution headers, histories and dead letters."""

    async def put_definition(self, name: str, hash_: DefinitionHash, document: bytes) -> int:
        """Stores a workflow definition and returns its version.

        A document that is already stored keeps its version; any other document gets the next
        version. A deleted document counts as not stored.
        """

    async def get_definition(self, hash_: DefinitionHash) -> Definition | None:
        """Returns the definition, even if its version was deleted, because executions may still
        need it.
        """

    async def delete_versions(self, name: str) -> int:
        """Deletes all versions of a workflow and returns how many there were.

        Lookups by this name return nothing until the next `put_definition`. The next version is
        higher than all deleted versions.
        """

    async def list_workflows(self, *, after: str = "", limit: int = 50) -> Sequence[Definition]:
        """Returns the newest version of each workflow, sorted by name.

        `after` is the last name of the previous page.
        """

    async def list_versions(self, name: str, *, limit: int = 50) -> Sequence[Definition]:
        """Returns the versions of a workflow, newest first.

        Returns an empty list if the name is unknown.
        """

    async def find_version(self, name: str, version: int) -> Definition | None: ...

    async def get_header(self, execution_id: ExecutionId) -> ExecutionHeader | None: ...

    async def get_headers(
        self, ids: Sequence[ExecutionId]
    ) -> Mapping[ExecutionId, ExecutionHeader]:
        """Returns the headers of the executions that exist.

        A Redis or PostgreSQL backend needs one round trip.
        """

    async def load(self, execution_id: ExecutionId, *, after: int = 0) -> Sequence[bytes]:
        """Returns the history entries of an execution in order, whether it is running or finished.

        Returns an empty list if the execution has no history. `after` is the number of entries that
        the caller already has; the backend does not read these entries.
        """

    async def list_headers(self, criteria: ExecutionFilter) -> HeaderPage:
        """Returns a page of execution headers, newest first by (created_at, id).

        Raises InputError if `criteria.after` is not a cursor.
        """

    async def count_headers(
        self, criteria: ExecutionFilter = ALL_EXECUTIONS
    ) -> Mapping[ExecutionState, ExecutionCount]:
        """Returns the number of executions in each state of the filter, or in each state if it has
        no states.

        Ignores `limit` and `after` of the filter.
        """

    async def find_ids(self, prefix: str, *, limit: int = 2) -> Sequence[ExecutionId]:
        """Returns the execution ids that begin with `prefix`, sorted.

        Users may type only the first characters of an id.

        A prefix without a dot matches root executions only: the id of a child begins with its
        root's id.
        """

    async def list_dead_letters(
        self, criteria: DeadLetterFilter = ALL_DEAD_LETTERS
    ) -> Sequence[DeadLetter]:
        """Returns dead letters, newest first.

        Letters with the same time are sorted by their encoded bytes, descending.
        """

    async def count_dead_letters(self, criteria: DeadLetterFilter = ALL_DEAD_LETTERS) -> int:
        """Counts the matching dead letters. Ignores `limit` and `after` of the filter."""

    async def delete_dead_letters(self, letters: Sequence[DeadLetter]) -> int:
        """Deletes the dead letters wherever the backend keeps copies; returns how many existed."""


class Retention(Protocol):
    """The interface that deletes finished executions, and blobs without an execution."""

    async def delete_finished(self, state: ExecutionState, *, before: float, limit: int) -> int:
        """Deletes root executions that ended in `state` before the time `before`, with all their
        children.

        Deletes at most `limit` roots, oldest first. Skips a root while one of its children is
        running. Returns how many roots it deleted.
        """

    async def delete_orphaned_blobs(self, *, idle_s: float) -> int:
        """Deletes blobs that have no execution and were not written for `idle_s`; returns how many.

        A process that dies before its command is stored leaves blobs without an execution.
        """
