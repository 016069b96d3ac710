"""Schedulers on one store in memory with a fake clock. No worker runs the executions."""

from collections.abc import Sequence
from datetime import datetime
from typing import cast

import msgspec

from runnel.backends.memory import MemoryBackend
from runnel.client.store_client import StoreClient
from runnel.core.commands import Command
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.core.workflow import encode_workflow, hash_workflow
from runnel.errors import StoreError
from runnel.notify.waiter import Completion
from runnel.ports.archive import ExecutionFilter
from runnel.ports.records import Records
from runnel.ports.store import ExecutionHeader
from runnel.ports.telemetry import NullTelemetry
from runnel.testing.clock import FakeClock, FakeIds
from runnel.triggers.schedule import ScheduleProgress
from runnel.triggers.schedule_store import ScheduleStore
from runnel.triggers.scheduler import Scheduler
from runnel.views.trigger import Schedule
from tests.core_driver import make_node, make_workflow

NIGHTLY = msgspec.structs.replace(make_workflow(make_node("a")), name="report")
START = 1_700_000_000.0


class RecordingTelemetry(NullTelemetry):
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def event(self, name: str, **fields: object) -> None:
        self.events.append((name, fields))

    def named(self, name: str) -> list[dict[str, object]]:
        return [fields for event, fields in self.events if event == name]


class SchedulerHarness:
    def __init__(self) -> None:
        self.clock = FakeClock(START)
        self.ids = FakeIds()
        self.backend = MemoryBackend(self.clock, self.ids)
        self.telemetry = RecordingTelemetry()

    @property
    def schedules(self) -> ScheduleStore:
        return ScheduleStore(self.backend, self.clock, self.ids)

    def scheduler(self) -> Scheduler:
        """Returns a scheduler like that of a separate process."""
        client = StoreClient(
            self.backend, self.clock, self.ids, get_completion=lambda _id: Completion()
        )
        return Scheduler(self.schedules, client, self.backend.archive, self.clock, self.telemetry)

    def scheduler_away(self) -> "tuple[Scheduler, UnreachableRecords]":
        """Returns a scheduler whose store fails as the test specifies."""
        records = self.backend.records
        away = UnreachableRecords(records, StoreError("gone"))
        self.backend.records = cast("Records", away)
        scheduler = self.scheduler()
        self.backend.records = records
        return scheduler, away

    async def sent(self) -> list[Command]:
        lease = await self.backend.store.acquire(0, "owner")
        entries = await self.backend.store.read_inbox(lease, limit=100, wait_s=0)
        return [entry.command for entry in entries if entry.command is not None]

    async def add_workflow(self) -> None:
        await self.backend.archive.put_definition(
            NIGHTLY.name, hash_workflow(NIGHTLY), encode_workflow(NIGHTLY)
        )

    async def add(self, schedule_id: str = "s", **fields: object) -> None:
        """Adds a schedule, by default with an interval of ten seconds."""
        await self.add_workflow()
        if "cron" not in fields:
            fields = {"interval_s": 10.0, **fields}
        schedule = Schedule(id=schedule_id, workflow=NIGHTLY.name, **fields)  # type: ignore[arg-type]  # each test gives what fits
        await self.schedules.add(schedule)

    async def progress(self, schedule_id: str = "s") -> ScheduleProgress:
        return (await self.schedules.get(schedule_id)).record.progress

    async def started(self) -> Sequence[ExecutionHeader]:
        """Returns the headers of the started executions, sorted by tick."""
        headers = (await self.backend.archive.list_headers(ExecutionFilter(limit=10_000))).headers
        return sorted(headers, key=lambda header: header.labels["runnel.tick"])

    async def ticks(self) -> list[float]:
        """Returns the ticks of the started executions, in seconds since START."""
        tick_labels = [header.labels["runnel.tick"] for header in await self.started()]
        decoded = [msgspec.json.decode(f'"{text}"', type=datetime) for text in tick_labels]
        return [tick.timestamp() - START for tick in decoded]

    def end(self, execution_id: str | None) -> None:
        """Ends an execution as its partition owner would."""
        headers = self.backend.state.headers
        known = ExecutionId(execution_id or "")
        headers[known] = msgspec.structs.replace(headers[known], state=ExecutionState.COMPLETED)


class UnreachableRecords:
    """Fails a number of calls of one method, before or after the call takes effect."""

    def __init__(self, records: Records, error: Exception) -> None:
        self._records = records
        self._error = error
        self.failing = ""
        self.is_done = False

    def __getattr__(self, name: str) -> object:
        method = getattr(self._records, name)
        if name != self.failing:
            return method

        async def fail(*args: object, **named: object) -> None:
            self.failing = ""
            if self.is_done:
                await method(*args, **named)
            raise self._error

        return fail
