"""Submits the documents of a batch, so many at a time, and hears how each of them ends.

What an earlier run of the same batch has submitted is found again by its id, which is made from the
batch's name and the document's key: it is never submitted twice, by whichever process.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from runnel.cli.batches.documents import Document
from runnel.cli.batches.tally import Outcome
from runnel.client import Client
from runnel.core.events import ExecutionFinished
from runnel.core.ids import ExecutionId
from runnel.core.states import EXECUTION_FINAL, ExecutionState
from runnel.core.workflow import Workflow
from runnel.engine.patience import Patience
from runnel.errors import InputError, KeyReusedError
from runnel.idempotency import execution_id_of
from runnel.ports.archive import Archive
from runnel.ports.clock import Clock
from runnel.ports.store import Header
from runnel.runtime.hub import Happened, Hub, Started

# Asked of the store for all that are under way at once; what runs here is told at once besides.
LOOK_EVERY_S = 0.2
LOOKED_UP_AT_ONCE = 500
ADOPT_EVERY_S = 2.0
BATCH_LABEL = "runnel.batch"
RETRY_KEY = "batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """`name` tells this batch from others of the same workflow, when it is started again."""

    name: str
    workflow: Workflow
    documents: Sequence[Document]
    labels: Mapping[str, str] = field(default_factory=dict)
    in_flight_max: int = 100
    retries_failed: bool = False

    def key_of(self, document: Document) -> str:
        return f"{self.name}:{document.key}"

    def id_of(self, document: Document) -> ExecutionId:
        return execution_id_of(self.workflow.name, self.key_of(document))


Adopt = Callable[[ExecutionId], Awaitable[None]]


class Feeder:
    """`tell` is given what has become of each document, once.

    `adopt` is called now and then with what is under way, for a process that goes on with what
    another one of the same batch has left.
    """

    def __init__(
        self,
        batch: Batch,
        client: Client,
        archive: Archive,
        clock: Clock,
        *,
        hub: Hub,
        tell: Callable[[Outcome], Awaitable[None]],
        adopt: Adopt | None = None,
    ) -> None:
        self._batch = batch
        self._client = client
        self._archive = archive
        self._clock = clock
        self._hub = hub
        self._tell = tell
        self._adopt = adopt
        self._adopted_at = clock.monotonic()
        self._patience = Patience(clock, hub, "batch")
        self._in_flight: dict[ExecutionId, Document] = {}
        self._news = asyncio.Event()
        self._ended: list[ExecutionId] = []

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    async def run(self, stop: asyncio.Event) -> None:
        """Until all are over, or `stop` is set: then nothing more is submitted."""
        end_watch = self._hub.watch(self._see)
        rest = iter(self._batch.documents)
        try:
            while not stop.is_set():
                fed = await self._feed(rest)
                if not fed and not self._in_flight:
                    return
                if not fed or self.in_flight >= self._batch.in_flight_max:
                    await self._hear(stop)
        finally:
            end_watch()

    async def _feed(self, rest: Iterator[Document]) -> bool:
        """Some more documents, as many as there is room for; False without any."""
        room = min(LOOKED_UP_AT_ONCE, self._batch.in_flight_max - self.in_flight)
        some = list(islice(rest, room))
        if not some:
            return False
        ids = [self._batch.id_of(document) for document in some]
        known = await self._headers(ids)
        async with asyncio.TaskGroup() as group:
            for execution_id, document in zip(ids, some, strict=True):
                group.create_task(self._begin(document, known.get(execution_id)))
        return True

    async def _begin(self, document: Document, header: Header | None) -> None:
        """Also of one that is known: whether it is the same is judged by the submit."""
        batch = self._batch
        execution_id = await self._submit(document)
        if header is not None:
            header = await self._last_of(header)
            execution_id = header.execution_id
        if header is not None and header.state in EXECUTION_FINAL:
            if header.state is ExecutionState.COMPLETED or not batch.retries_failed:
                await self._tell(Outcome(document, header, is_earlier=True))
                return
            execution_id = await self._client.rerun(execution_id, idempotency_key=RETRY_KEY)
        self._in_flight[execution_id] = document

    async def _submit(self, document: Document) -> ExecutionId:
        batch = self._batch
        try:
            # Again after a failure: with its key, it is the same submit.
            return await self._patience.until_done(
                lambda: self._client.submit(
                    batch.workflow,
                    document.input,
                    labels={**batch.labels, BATCH_LABEL: batch.name},
                    idempotency_key=batch.key_of(document),
                ),
                "submit",
            )
        except KeyReusedError as error:
            raise InputError(
                f"line {document.line}: execution {error.execution_id} of the batch "
                f"'{batch.name}' has the same id, but was submitted with {error.difference}; "
                "give this batch another --name, or put back what has changed"
            ) from error

    async def _last_of(self, header: Header) -> Header:
        """Of the reruns that `--retry-failed` has made of it, one after the other."""
        while header.state in EXECUTION_FINAL and header.state is not ExecutionState.COMPLETED:
            again = execution_id_of(header.execution_id, RETRY_KEY)
            found = await self._archive.get_header(again)
            if found is None:
                return header
            header = found
        return header

    async def _hear(self, stop: asyncio.Event) -> None:
        """Waits for news of what is under way, and asks the store what has become of it.

        Of those that this process has ended, or else of all: others may run them.
        """
        async with asyncio.TaskGroup() as group:
            stopped = group.create_task(self._wake_by(stop))
            await self._clock.wait(self._news, LOOK_EVERY_S)
            stopped.cancel()
        self._news.clear()
        told, self._ended = self._ended, []
        ids = told or list(self._in_flight)
        for first in range(0, len(ids), LOOKED_UP_AT_ONCE):
            headers = await self._headers(ids[first : first + LOOKED_UP_AT_ONCE])
            for execution_id, header in headers.items():
                if header.state in EXECUTION_FINAL:
                    await self._tell(Outcome(self._in_flight.pop(execution_id), header))
        if not told:
            await self._adopt_some()

    async def _adopt_some(self) -> None:
        now = self._clock.monotonic()
        if self._adopt is not None and now - self._adopted_at >= ADOPT_EVERY_S:
            self._adopted_at = now
            for execution_id in list(self._in_flight):
                await self._adopt(execution_id)

    async def _headers(self, ids: Sequence[ExecutionId]) -> Mapping[ExecutionId, Header]:
        """A server that is away for a while is waited for."""
        return await self._patience.until_done(lambda: self._archive.get_headers(ids), "look")

    async def _wake_by(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._news.set()

    def _see(self, what: Happened | Started) -> None:
        if isinstance(what, Started) or what.execution_id not in self._in_flight:
            return
        if any(isinstance(event, ExecutionFinished) for event in what.events):
            self._ended.append(ExecutionId(what.execution_id))
            self._news.set()
