"""What schedules and webhooks have in common: stored records, checks, the scope of templates."""

from collections.abc import Iterator
from typing import TypeVar

import msgspec

from runnel.authoring.payloads import (
    NAME_CHARS_MAX,
    RESERVED_LABEL_PREFIX,
    check_labels,
    check_text,
)
from runnel.core.templates.errors import MissingValueError
from runnel.core.values import Json
from runnel.core.wording import escape_unprintable, quote_name, suggest_name
from runnel.errors import NewerFormatError, NotFoundError, PayloadError, UnreadableFormatError
from runnel.ports.records import Records

KNOWN_NAMES_MAX = 1_000
T = TypeVar("T")


class _RecordFormat(msgspec.Struct):
    format: int


_format_decoder = msgspec.json.Decoder(_RecordFormat)


def decode_record(
    data: bytes, decoder: msgspec.json.Decoder[T], *, subject: str, newest_format: int
) -> T:
    """Decodes a record, which carries the version of its form.

    Raises UnreadableFormatError, and NewerFormatError above version `newest_format`: what a later
    version wrote is left alone.
    """
    try:
        stored_format = _format_decoder.decode(data).format
        if stored_format > newest_format:
            raise NewerFormatError(
                f"{subject} has format {stored_format}, this Runnel knows up to {newest_format}: "
                "upgrade Runnel"
            )
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise UnreadableFormatError(f"{subject} can't be read: {error}") from error


async def build_unknown_trigger_error(
    records: Records, kind: str, name: str, *, title: str
) -> NotFoundError:
    """Builds the error for a name that no record has: it suggests a similar one."""
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
            reserved = f"begins with '{RESERVED_LABEL_PREFIX}', as only Runnel's own do"
            yield f"labels: {quote_name(key)} {reserved}"


class RootScope:
    """The values of templates by the names that they begin with."""

    def __init__(self, values: dict[str, Json]) -> None:
        self._values = values

    def lookup(self, root: str) -> Json:
        if root not in self._values:
            raise MissingValueError(root, names=self._values)
        return self._values[root]
