"""Converts payloads to the values of commands: inline if small, otherwise a blob."""

from collections.abc import Mapping

import msgspec

from runnel.authoring.input_schema import CheckedInput, check_input
from runnel.authoring.payloads import encode_payload
from runnel.core.ids import ExecutionId
from runnel.core.input_defaults import fill_defaults
from runnel.core.values import (
    BLOB_BYTES_MAX,
    INLINE_BYTES_MAX,
    Json,
    Value,
    make_blob_reference,
    make_value_from_json,
)
from runnel.core.workflow import Workflow
from runnel.errors import InvalidInputError, PayloadError
from runnel.ports.clock import IdGenerator
from runnel.ports.records import BlobStore
from runnel.ports.store import NO_BLOBS

# The label of a held execution whose input fits the workflow. `trigger` then needs no second check,
# for which it would have to wait until a process has created the execution.
CHECKED_LABEL = "runnel.checked"

ValueWithBlobs = tuple[Value, Mapping[str, bytes]]
"""A value of a command, and the blobs to send with the command."""


class PayloadStorage:
    """Converts payloads to values, and loads the payloads of values."""

    def __init__(self, blobs: BlobStore, ids: IdGenerator) -> None:
        self._blobs = blobs
        self._ids = ids

    def to_value(self, data: bytes, prefix: str) -> ValueWithBlobs:
        """Returns the value of a payload, and its blob if it is large.

        Raises PayloadError if the payload is too large. Each call makes its own blob key, because
        the store may accept only one of two concurrent calls.
        """
        if len(data) <= INLINE_BYTES_MAX:
            return make_value_from_json(data), NO_BLOBS
        if len(data) > BLOB_BYTES_MAX:
            raise PayloadError(
                f"a value has {len(data)} bytes, but at most {BLOB_BYTES_MAX} are allowed"
            )
        key = f"{prefix}/{self._ids.nonce()}"
        return make_blob_reference(key, len(data)), {key: data}

    async def load(self, value: Value) -> bytes:
        return await self._blobs.get(value.blob) if value.blob else value.data

    async def copy_value(self, value: Value, execution_id: ExecutionId) -> ValueWithBlobs:
        """Copies a value of another execution, which may be deleted at any time."""
        if value.blob is None:
            return value, NO_BLOBS
        return self.to_value(await self.load(value), f"{execution_id}/taken")


def complete_input(
    workflow: Workflow, data: bytes, *, is_checked: bool = False, where: str = "input"
) -> bytes:
    """Returns the input with the defaults of its schema; the same object if nothing is missing.

    Raises InvalidInputError if the input does not fit the workflow, unless `is_checked` is true. In
    encoded input, a tuple is a list and a dataclass is an object. `where` names the input in
    messages.
    """
    if workflow.input is None:
        return data
    value = msgspec.json.decode(data)
    if not is_checked:
        check_input(workflow, value, where=where)
    filled = fill_defaults(workflow.input, value)
    return data if filled is value else msgspec.json.encode(filled)


def prepare_input(
    workflow: Workflow, input_: Json, *, is_held: bool
) -> tuple[bytes, bytes, dict[str, str]]:
    """Returns the input as submitted, the input with defaults, and the label of a checked input.

    Raises InvalidInputError if the input does not fit the workflow. For a held execution, such an
    input is stored as it is: `trigger` may replace it.
    """
    value = input_.value if isinstance(input_, CheckedInput) else input_
    is_checked = value is not None and isinstance(input_, CheckedInput)
    data = encode_payload({} if value is None else value, where="input")
    if not is_held:
        return data, complete_input(workflow, data, is_checked=is_checked), {}
    if value is None:
        return data, data, {}
    try:
        return data, complete_input(workflow, data), {CHECKED_LABEL: "input"}
    except InvalidInputError:
        return data, data, {}
