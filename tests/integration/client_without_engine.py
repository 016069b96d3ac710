"""A client without an engine, for tests of the commands that a client stores."""

from runnel.backends.memory import MemoryBackend
from runnel.client.store_client import StoreClient
from runnel.core.commands import Command
from runnel.notify.waiter import Completion
from runnel.testing.clock import FakeClock, FakeIds


class ClientWithoutEngine:
    """A client on a store without an engine, so stored commands stay there for inspection."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.backend = MemoryBackend(self.clock, FakeIds("store"))
        self.client = StoreClient(
            self.backend, self.clock, FakeIds(), get_completion=lambda _execution_id: Completion()
        )

    async def sent(self) -> list[Command | None]:
        lease = await self.backend.store.acquire(0, "test")
        entries = await self.backend.store.read_inbox(lease, limit=100, wait_s=0)
        await self.backend.store.release(lease)
        return [entry.command for entry in entries]
