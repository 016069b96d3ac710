"""Reads whole inputs and outputs of executions, in chunks of bounded size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from runnel.client.nodes import find_item_output, find_node_index
from runnel.core.message_text import escape_unprintable
from runnel.core.states import FINAL_EXECUTION_STATES, FINAL_NODE_STATES, ExecutionState, NodeState
from runnel.core.values import NULL
from runnel.errors import NotFoundError, WrongStateError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from runnel.client.store_client import StoreClient
    from runnel.core.execution import Execution
    from runnel.core.ids import ExecutionId
    from runnel.core.values import Json, Value
    from runnel.ports import Backend
    from runnel.ports.records import RandomAccessBlobStore

# A compressed blob of PostgreSQL is decompressed up to the end of each chunk: smaller chunks would
# repeat that more often.
CHUNK_BYTES = 1024 * 1024


class ValueReader:
    """Reads the JSON of one value in chunks; `size` is its number of bytes."""

    def __init__(self, value: Value, first_chunk: bytes, blobs: RandomAccessBlobStore) -> None:
        self.size = value.size
        self._key = value.blob
        self._first_chunk = first_chunk
        self._blobs = blobs

    async def iter_chunks(self) -> AsyncGenerator[bytes, None]:
        """Yields the value; raises NotFoundError if it is deleted in the meantime."""
        chunk = self._first_chunk
        read = 0
        while True:
            yield chunk
            read += len(chunk)
            if self._key is None or read >= self.size:
                return
            chunk = await _read_chunk(self._blobs, self._key, read)


class StoreValues:
    """The client's `Values` over a store."""

    def __init__(self, client: StoreClient, backend: Backend) -> None:
        self._client = client
        self._archive = backend.archive
        self._blobs = backend.blobs

    async def output(
        self, execution_id: ExecutionId, node_id: str | None = None, *, item: int | None = None
    ) -> Json:
        return await _decode_chunks(self.stream_output(execution_id, node_id, item=item))

    async def input(self, execution_id: ExecutionId) -> Json:
        return await _decode_chunks(self.stream_input(execution_id))

    async def stream_output(
        self, execution_id: ExecutionId, node_id: str | None = None, *, item: int | None = None
    ) -> AsyncIterator[bytes]:
        reader = await self.open_output(execution_id, node_id, item=item)
        async for chunk in reader.iter_chunks():
            yield chunk

    async def stream_input(self, execution_id: ExecutionId) -> AsyncIterator[bytes]:
        reader = await self.open_input(execution_id)
        async for chunk in reader.iter_chunks():
            yield chunk

    async def open_output(
        self, execution_id: ExecutionId, node_id: str | None = None, *, item: int | None = None
    ) -> ValueReader:
        """Finds an output and reads its first chunk; raises NotFoundError and WrongStateError."""
        execution = await self._client.load(execution_id)
        if node_id is None:
            value = _find_execution_output(execution)
        elif item is None:
            value = _find_node_output(execution, node_id)
        else:
            entries = await self._archive.load(execution_id)
            value = find_item_output(execution, entries, node_id, item)
        return await self._open(value)

    async def open_input(self, execution_id: ExecutionId) -> ValueReader:
        """Reads the first chunk of an execution's input; raises NotFoundError."""
        execution = await self._client.load(execution_id)
        return await self._open(execution.input)

    async def _open(self, value: Value) -> ValueReader:
        if value.blob is None:
            return ValueReader(value, bytes(value.data), self._blobs)
        return ValueReader(value, await _read_chunk(self._blobs, value.blob, 0), self._blobs)


def _find_execution_output(execution: Execution) -> Value:
    if execution.state is not ExecutionState.COMPLETED:
        yet = "" if execution.state in FINAL_EXECUTION_STATES else " yet"
        raise WrongStateError(
            f"execution {execution.id} is {execution.state}: it has no output{yet}"
        )
    return execution.output or NULL


def _find_node_output(execution: Execution, node_id: str) -> Value:
    run = execution.nodes[find_node_index(execution, node_id)]
    if run.state is not NodeState.COMPLETED:
        yet = "" if run.state in FINAL_NODE_STATES or execution.is_final else " yet"
        raise WrongStateError(
            f"node '{escape_unprintable(node_id)}' of execution {execution.id} is {run.state}: it "
            f"has no output{yet}"
        )
    return run.output or NULL


async def _read_chunk(blobs: RandomAccessBlobStore, key: str, start: int) -> bytes:
    part = (await blobs.read_parts([key], start=start, size=CHUNK_BYTES))[0]
    if not part:
        raise NotFoundError("blob", key)
    return part


async def _decode_chunks(chunks: AsyncIterator[bytes]) -> Json:
    return msgspec.json.decode(b"".join([chunk async for chunk in chunks]))
