"""Checks inputs, and converts payloads to the values of commands: inline or a blob."""

import asyncio
from collections.abc import Mapping

import msgspec

from runnel.authoring.input_schema import CheckedInput, check_input, is_surely_valid
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
# The event loop itself checks an input of this size, if the quick check needs only so many steps.
# That takes at most about 20 ms. A thread checks every other input: jsonschema may take seconds for
# 1 MB.
QUICK_BYTES_MAX = 16_000
QUICK_STEPS_MAX = 10_000

ValueWithBlobs = tuple[Value, Mapping[str, bytes]]
"""A value of a command, and the blobs to send with the command."""


class PayloadStorage:
    """Completes inputs, converts payloads to values, and loads the payloads of values."""

    def __init__(self, blobs: BlobStore, ids: IdGenerator) -> None:
        self._blobs = blobs
        self._ids = ids
        # Only one thread checks a large input. Two would share one interpreter lock with the loop.
        self._large_inputs = asyncio.Lock()

    async def prepare_input(
        self, workflow: Workflow, input_: Json, *, is_held: bool
    ) -> tuple[bytes, bytes, bool]:
        """Returns the input as submitted, the input with defaults, and whether it surely fits.

        Raises InvalidInputError if the input does not fit the workflow. For a held execution, such
        an input is stored as it is: `trigger` may replace it.
        """
        value = input_.value if isinstance(input_, CheckedInput) else input_
        is_checked = value is not None and isinstance(input_, CheckedInput)
        data = encode_payload({} if value is None else value, where="input")
        if is_held and value is None:
            return data, data, False
        try:
            stored = await self.complete_input(
                workflow, data, is_checked=is_checked and not is_held
            )
        except InvalidInputError:
            if is_held:
                return data, data, False
            raise
        return data, stored, True

    async def complete_input(
        self, workflow: Workflow, data: bytes, *, is_checked: bool = False, where: str = "input"
    ) -> bytes:
        """Returns what the function `complete_input` returns; a thread checks a large input."""
        if workflow.input is None:
            return data
        if len(data) <= QUICK_BYTES_MAX:
            value = msgspec.json.decode(data)
            if is_checked or is_surely_valid(workflow.input, value, steps_max=QUICK_STEPS_MAX):
                return _fill_defaults(workflow.input, data, value)
            return await asyncio.to_thread(
                complete_input, workflow, data, is_checked=is_checked, where=where
            )
        async with self._large_inputs:
            return await asyncio.to_thread(
                complete_input, workflow, data, is_checked=is_checked, where=where
            )

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
    return _fill_defaults(workflow.input, data, value)


def _fill_defaults(schema: Mapping[str, Json], data: bytes, value: Json) -> bytes:
    filled = fill_defaults(schema, value)
    return data if filled is value else msgspec.json.encode(filled)
