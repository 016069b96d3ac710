"""Loads the values of a view: small values as they are, of large values the size and a preview."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from runnel.core.ids import ExecutionId
from runnel.core.values import Json, Value
from runnel.errors import NotFoundError
from runnel.ports.records import RandomAccessBlobStore
from runnel.views.value import PREVIEW_CHARS_MAX, ValuePreview, build_output_url, make_preview

# The largest value that is shown whole, if the view has only one or two such values: the input and
# output of an execution, and the output of a node in detail.
SHOWN_BYTES_MAX = 1024 * 1024
# The same for values of which a view has many: the outputs of all nodes, parents or map items.
LISTED_BYTES_MAX = 64 * 1024
# A character has at most 4 bytes.
PREVIEW_BYTES = 4 * PREVIEW_CHARS_MAX


class ValueToShow(NamedTuple):
    """A value of a view, the address of the whole value, and the size up to which it is shown."""

    value: Value | None
    url: str
    bytes_max: int = LISTED_BYTES_MAX

    @property
    def is_large(self) -> bool:
        return self.value is not None and self.value.size > self.bytes_max


class ShownValue(NamedTuple):
    """The content of a value, or None and a preview if the value is too large."""

    content: Json
    preview: ValuePreview | None = None


NOTHING = ShownValue(None)


def list_node_output(
    execution_id: ExecutionId, node_id: str, value: Value | None, *, item: int | None = None
) -> ValueToShow:
    """Returns the output of a node, or of an item of a map, as one of many values of a view."""
    return ValueToShow(value, build_output_url(execution_id, node_id, item))


async def load_shown_values(
    values: Sequence[ValueToShow], blobs: RandomAccessBlobStore
) -> list[ShownValue]:
    """Loads the values of a view, in their order; raises NotFoundError if a blob is missing.

    Of all large blobs, the first bytes are read together.
    """
    keys = [
        shown.value.blob
        for shown in values
        if shown.value is not None and shown.value.blob is not None and shown.is_large
    ]
    parts = await blobs.read_parts(keys, start=0, size=PREVIEW_BYTES) if keys else ()
    heads = dict(zip(keys, parts, strict=True))
    return [await _load_shown_value(shown, heads, blobs) for shown in values]


async def _load_shown_value(
    shown: ValueToShow, heads: dict[str, bytes | None], blobs: RandomAccessBlobStore
) -> ShownValue:
    value = shown.value
    if value is None:
        return NOTHING
    if shown.is_large:
        if value.blob is None:
            head: bytes | None = bytes(memoryview(value.data)[:PREVIEW_BYTES])
        else:
            head = heads[value.blob]
        if head is None:
            raise NotFoundError("blob", str(value.blob))
        return ShownValue(None, make_preview(head, value.size, shown.url))
    if value.blob is None:
        return ShownValue(value.decode())
    return ShownValue(msgspec.json.decode(await blobs.get(value.blob)))
