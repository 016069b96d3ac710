"""The history of an execution, as a client returns it."""

import pytest

from runnel.backends.memory import MemoryBackend
from runnel.client.store_client import StoreClient
from runnel.core.ids import ExecutionId
from runnel.errors import NotFoundError
from runnel.notify.waiter import Completion
from runnel.testing.clock import FakeClock, FakeIds
from tests.core_driver import make_node, make_workflow


async def test_an_execution_that_no_orchestrator_has_created_has_an_empty_history() -> None:
    clock = FakeClock()
    backend = MemoryBackend(clock, FakeIds("store"))
    client = StoreClient(
        backend, clock, FakeIds(), get_completion=lambda _execution_id: Completion()
    )
    execution_id = await client.submit(make_workflow(make_node("a")))

    assert await client.history(execution_id) == []
    with pytest.raises(NotFoundError):
        await client.history(ExecutionId("nope"))
