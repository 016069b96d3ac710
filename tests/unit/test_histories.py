"""The history of an execution, as a caller is given it."""

import pytest

from runnel.backends.memory import MemoryBackend
from runnel.client.store_client import Client
from runnel.core.ids import ExecutionId
from runnel.errors import NotFoundError
from runnel.notify.waiter import Ending
from runnel.testing.clock import FakeClock, FakeIds
from tests.driver import node, workflow


async def test_an_execution_that_nobody_has_seen_yet_has_no_history() -> None:
    clock = FakeClock()
    backend = MemoryBackend(clock, FakeIds("store"))
    client = Client(backend, clock, FakeIds(), ending_of=lambda _execution_id: Ending())
    execution_id = await client.submit(workflow(node("a")))

    assert await client.history(execution_id) == []
    with pytest.raises(NotFoundError):
        await client.history(ExecutionId("nope"))
