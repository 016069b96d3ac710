"""Functions that schedules and webhooks share: records, execution ids, checks, template scope."""

import hashlib
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from runnel.authoring.payloads import (
    NAME_CHARS_MAX,
    RESERVED_LABEL_PREFIX,
    check_labels,
    check_text,
)
from runnel.core.ids import ExecutionId
from runnel.core.message_text import escape_unprintable, quote_name, suggest_name
from runnel.core.templates.errors import MissingValueError
from runnel.core.values import Json
from runnel.errors import NewerFormatError, NotFoundError, PayloadError, UnreadableFormatError
from runnel.ports.records import Records

KNOWN_NAMES_MAX = 1_000
HASH_BYTES = 9
T = TypeVar("T")


def derive_execution_id(prefix: str, *parts: str) -> ExecutionId:
    """Returns an execution id, equal in every process: `prefix`, and a hash of the parts."""
    return ExecutionId(prefix + compute_hash("\0".join(parts).encode("utf-8", "replace")))


def compute_hash(data: bytes) -> str:
    """Returns a hash of 72 bits in hexadecimal digits."""
    return hashlib.blake2b(data, digest_size=HASH_BYTES).hexdigest()


class _RecordFormat(msgspec.Struct):
    format: int


_format_decoder = msgspec.json.Decoder(_RecordFormat)


def decode_record(
    data: bytes, decoder: msgspec.json.Decoder[T], *, subject: str, newest_format: int
) -> T:
    """Decodes a record, which contains the number of its format.

    Raises UnreadableFormatError for damaged data. Raises NewerFormatError for a format above
    `newest_format`, so that this Runnel does not change a record of a newer Runnel.
    """
    try:
        stored_format = _format_decoder.decode(data).format
        if stored_format > newest_format:
            raise NewerFormatError(
                f"{subject} has format {stored_format}, but this Runnel supports at most format "
                f"{newest_format}; upgrade Runnel"
            )
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise UnreadableFormatError(f"{subject} can't be read: {error}") from error


async def build_unknown_trigger_error(
    records: Records, kind: str, name: str, *, title: str
) -> NotFoundError:
    """Builds the error for an unknown schedule or webhook, which suggests a similar name."""
    known = [record.key for record in await records.list(kind, limit=KNOWN_NAMES_MAX)]
    close = suggest_name(name, known).strip(" ()")
    hint = close or f"'runnel {kind} list' shows those that exist"
    return NotFoundError(title, escape_unprintable(name), hint=hint)


def find_target_problems(workflow: str, version: int | None) -> Iterator[str]:
    try:
        check_text(workflow, "workflow", chars_max=NAME_CHARS_MAX)
    except PayloadError as error:
        yield str(error)
    if version is not None and version < 1:
        yield f"version: expected at least 1, got {version}"


def find_label_problems(labels: dict[str, str]) -> Iterator[str]:
    try:
        check_labels(labels)
    except PayloadError as error:
        yield f"labels: {error}"
    for key in labels:
        if key.startswith(RESERVED_LABEL_PREFIX):
            yield (
                f"labels: {quote_name(key)} begins with '{RESERVED_LABEL_PREFIX}', which is "
                "reserved for Runnel; rename the label"
            )


class RootScope:
    """The values that templates can refer to, by the first name of a path."""

    def __init__(self, values: dict[str, Json]) -> None:
        self._values = values

    def lookup(self, root: str) -> Json:
        if root not in self._values:
            raise MissingValueError(root, names=self._values)
        return self._values[root]
