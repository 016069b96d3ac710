"""The archive port: definitions, lists and histories of executions, dead letters, retention."""

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

# -- cursors: the position at which a page of executions ended, as a text for the caller --
# Executions are sorted newest first, by (created_at, id). A position stays valid after its
# execution is deleted, and executions that are created later do not move it.

PageCursor = NewType("PageCursor", str)
"""An opaque text. Its format may change; cursors of an older format are then refused."""
PagePosition: TypeAlias = tuple[float, str]

NEWEST_POSITION: PagePosition = (inf, "")
"""The position before the newest execution."""

_CURSOR_CHARS_MAX = 4_000
_decode = msgspec.json.Decoder(tuple[float, str]).decode


def encode_cursor(position: PagePosition) -> PageCursor:
    data = base64.urlsafe_b64encode(msgspec.json.encode(position))
    return PageCursor(data.decode().rstrip("="))


def decode_cursor(cursor: str) -> PagePosition:
    """Raises InputError if the text is not a cursor that a page has returned."""
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

    `created_from` is inclusive, `created_before` is exclusive. `text` is a part of the id, of the
    workflow's name, of a label's value or of the error; upper and lower case are the same. `parent`
    selects child executions, whatever `with_children` is. `after` is the `next` of the previous
    page.
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
    whether to read the next page.
    """

    headers: Sequence[ExecutionHeader]
    next: PageCursor | None = None

    def __iter__(self) -> Iterator[ExecutionHeader]:
        return iter(self.headers)


class ExecutionCount(msgspec.Struct, frozen=True, kw_only=True):
    """A number of executions.

    If `is_least`, counting stopped there and the true number may be higher.
    """

    number: int = 0
    is_least: bool = False


class DeadLetterFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects dead letters. `execution` is the beginning of an execution id.

    `before` limits the time of rejection. `after` is the last letter of the previous page (newest
    first); it may have been deleted since.
    """

    queue: str | None = None
    workflow: str | None = None
    execution: str = ""
    before: float = inf
    after: DeadLetter | None = None
    limit: int = 50


ALL_DEAD_LETTERS = DeadLetterFilter()


class Archive(Protocol):
    """Definitions, execution headers, histories and dead letters. The client reads them."""

    async def put_definition(self, name: str, hash_: DefinitionHash, document: bytes) -> int:
        """Stores a workflow definition and returns its version.

        Known content keeps its version; changed content gets the next one. Deleted content counts
        as unknown.
        """

    async def get_definition(self, hash_: DefinitionHash) -> Definition | None:
        """Returns the definition, also if its version was deleted: executions still need it."""

    async def delete_versions(self, name: str) -> int:
        """Deletes all versions of a workflow and returns how many there were.

        From then on no version is found by this name until the next `put_definition`. The version
        stored then is higher than all earlier ones.
        """

    async def list_workflows(self, *, after: str = "", limit: int = 50) -> Sequence[Definition]:
        """Returns the newest version of each workflow, sorted by name.

        `after` is the last name of the previous page.
        """

    async def list_versions(self, name: str, *, limit: int = 50) -> Sequence[Definition]:
        """Returns the versions of a workflow, newest first; empty if the name is unknown."""

    async def find_version(self, name: str, version: int) -> Definition | None: ...

    async def get_header(self, execution_id: ExecutionId) -> ExecutionHeader | None: ...

    async def get_headers(
        self, ids: Sequence[ExecutionId]
    ) -> Mapping[ExecutionId, ExecutionHeader]:
        """Returns the headers of the ids that exist. Backends on a network use one round trip."""

    async def load(self, execution_id: ExecutionId, *, after: int = 0) -> Sequence[bytes]:
        """Returns the history entries of an execution in order, whether it is running or finished.

        Empty if it has none. `after` is the number of entries that the caller already has: the
        backend skips and does not read them.
        """

    async def list_headers(self, criteria: ExecutionFilter) -> HeaderPage:
        """Returns a page, newest first by (created_at, id).

        Raises InputError if `after` is not a cursor.
        """

    async def count_headers(
        self, criteria: ExecutionFilter = ALL_EXECUTIONS
    ) -> Mapping[ExecutionState, ExecutionCount]:
        """Counts the executions in each state of the filter, or in every state if it names none.

        `limit` and `after` are ignored.
        """

    async def find_ids(self, prefix: str, *, limit: int = 2) -> Sequence[ExecutionId]:
        """Returns the ids that begin with `prefix`, sorted: people type the first characters of an
        id.

        A prefix without a dot matches root executions only: the id of a child begins with its
        root's id.
        """

    async def list_dead_letters(
        self, criteria: DeadLetterFilter = ALL_DEAD_LETTERS
    ) -> Sequence[DeadLetter]:
        """Returns dead letters, newest first.

        Letters with the same time are in descending order of bytes.
        """

    async def count_dead_letters(self, criteria: DeadLetterFilter = ALL_DEAD_LETTERS) -> int:
        """Counts the matching dead letters; `limit` and `after` are ignored."""

    async def delete_dead_letters(self, letters: Sequence[DeadLetter]) -> int:
        """Deletes the letters from every place that keeps them; returns how many existed."""


class Retention(Protocol):
    """Deletes finished executions, and blobs without an execution."""

    async def delete_finished(self, state: ExecutionState, *, before: float, limit: int) -> int:
        """Deletes root executions that ended in `state` before `before`, with all their children.

        Deletes at most `limit` roots, oldest first. Skips a root while one of its children is
        running. Returns how many roots it deleted.
        """

    async def delete_orphaned_blobs(self, *, idle_s: float) -> int:
        """Deletes blobs without an execution that were not touched for `idle_s`; returns how many.

        A process that dies before its command is stored leaves such blobs.
        """
