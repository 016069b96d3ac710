"""The client that commands have, of a server: it reads as a local one, and acts by requests."""

from collections.abc import Callable, Mapping

from runnel.authoring.payloads import RESERVED_LABELS
from runnel.client import Client as LocalClient
from runnel.core.ids import ExecutionId
from runnel.core.json_types import Json
from runnel.core.workflow import Workflow
from runnel.endings import Ending, Listen
from runnel.errors import InputError
from runnel.ports.backend import Backend
from runnel.ports.clock import Clock, Ids
from runnel.ports.store import Header
from runnel.remote.client import Client
from runnel.remote.models import StoredWorkflow
from runnel.reruns import Rerun
from runnel.views import ExecutionView


class ServedClient(LocalClient):
    """`backend` is looked into only: what changes something is left to the server, which judges it.

    Labels of Runnel's own are not sent along: a server sets them by itself.
    """

    def __init__(
        self,
        server: Client,
        backend: Backend,
        clock: Clock,
        ids: Ids,
        *,
        ending_of: Callable[[str], Ending],
        listen: Listen,
    ) -> None:
        super().__init__(backend, clock, ids, ending_of=ending_of, listen=listen)
        self._server = server
        self._stored: tuple[Workflow, StoredWorkflow] | None = None

    async def submit(
        self,
        workflow: Workflow,
        input_: Json = None,
        *,
        labels: Mapping[str, str] | None = None,
        is_held: bool = False,
        idempotency_key: str | None = None,
        execution_id: ExecutionId | None = None,
    ) -> ExecutionId:
        if execution_id is not None:
            raise InputError("over HTTP, an execution is named by an idempotency key, not by an id")
        if is_held:
            if input_ is not None or labels:
                raise InputError("over HTTP, an execution that is held gets its input by a trigger")
            return await self._server.hold(workflow, idempotency_key=idempotency_key)
        # A batch submits the same one again and again.
        if self._stored is None or self._stored[0] is not workflow:
            self._stored = workflow, await self._server.store(workflow)
        stored = self._stored[1]
        own = {
            key: value
            for key, value in (labels or {}).items()
            if not key.startswith(RESERVED_LABELS)
        }
        return await self._server.submit(
            stored.name,
            input_,
            labels=own,
            version=stored.version,
            idempotency_key=idempotency_key,
        )

    async def begin(
        self,
        workflow: Workflow,
        input_: Json = None,
        *,
        labels: Mapping[str, str] | None = None,
        is_held: bool = False,
        idempotency_key: str | None = None,
        execution_id: ExecutionId | None = None,
        version: int | None = None,
    ) -> Header:
        """The server finds and stores the definition by itself, whatever `version` is."""
        begun = await self.submit(
            workflow,
            input_,
            labels=labels,
            is_held=is_held,
            idempotency_key=idempotency_key,
            execution_id=execution_id,
        )
        return await self.header(begun)

    async def rerun(
        self,
        execution_id: ExecutionId,
        wanted: Rerun | None = None,
        *,
        input_: Json = None,
        idempotency_key: str | None = None,
    ) -> ExecutionId:
        return await self._server.rerun(
            execution_id, wanted, input=input_, idempotency_key=idempotency_key
        )

    async def trigger(
        self,
        execution_id: ExecutionId,
        input_: Json = None,
        *,
        idempotency_key: str | None = None,
    ) -> None:
        await self._server.trigger(execution_id, input_, idempotency_key=idempotency_key)

    async def cancel(
        self, execution_id: ExecutionId, *, reason: str = "", is_forced: bool = False
    ) -> None:
        await self._server.cancel(execution_id, reason=reason, is_forced=is_forced)

    async def signal(
        self,
        execution_id: ExecutionId,
        name: str,
        payload: Json = None,
        *,
        signal_id: str | None = None,
    ) -> None:
        await self._server.signal(execution_id, name, payload, signal_id=signal_id)

    async def get(self, execution_id: ExecutionId) -> ExecutionView:
        return await self._server.get(execution_id)
