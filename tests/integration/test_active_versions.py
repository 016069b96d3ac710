"""The active version of a workflow: what runs by name, on every backend."""

import asyncio

import pytest
from msgspec.structs import replace

from runnel.app.embedded_engine import ClockAndIds, EmbeddedEngine
from runnel.app.wiring import build_scheduler
from runnel.core.workflow import Workflow
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.errors import InputError, NotFoundError
from runnel.ports.clock import NoSecrets
from runnel.triggers.schedule_store import ScheduleStore
from runnel.triggers.webhook import WebhookStore
from runnel.triggers.webhook_delivery import Delivery
from runnel.triggers.webhook_receiver import WebhookReceiver
from runnel.views.trigger import Schedule, Webhook, WebhookKind
from tests.core_driver import make_node, make_workflow
from tests.integration.test_scenarios import engine, work

__all__ = ["engine", "work"]


def make_version(number: int, name: str = "flow") -> Workflow:
    return replace(make_workflow(make_node("a", config={"number": number})), name=name)


async def store_versions(engine: EmbeddedEngine, number: int) -> None:
    for version in range(1, number + 1):
        await engine.client.library.store(make_version(version))


async def test_the_newest_version_runs_until_a_version_is_activated(engine: EmbeddedEngine) -> None:
    library = engine.client.library
    await store_versions(engine, 2)
    before = (await library.find("flow")).version, await library.active("flow")

    activated = await library.activate("flow", 1, author="ada")
    await library.store(make_version(3))

    assert (before[0], before[1].version, list(before[1].activations)) == (2, 2, [])
    assert (activated.version, activated.activations[0].activated_by) == (1, "ada")
    assert abs(activated.activations[0].activated_at - engine.clock.now()) < 60
    assert (await library.find("flow")).version == 1
    assert (await library.get("flow")).version == 1
    assert (await library.find("flow", 3)).version == 3
    assert [item.active_version for item in await library.versions("flow")] == [1, 1, 1]


async def test_a_roll_back_and_a_return_to_the_newest_version_are_recorded(
    engine: EmbeddedEngine,
) -> None:
    library = engine.client.library
    await store_versions(engine, 3)
    for version, author in ((2, "ada"), (1, "bob"), (None, "cy")):
        await library.activate("flow", version, author=author)
    await library.store(make_version(4))

    active = await library.active("flow")

    assert (active.version, (await library.find("flow")).version) == (4, 4)
    assert [(item.version, item.activated_by) for item in active.activations] == [
        (None, "cy"),
        (1, "bob"),
        (2, "ada"),
    ]


async def test_the_list_of_workflows_has_the_active_version_on_every_page(
    engine: EmbeddedEngine,
) -> None:
    library = engine.client.library
    for name in ("a", "b", "c", "d"):
        await library.store(make_version(1, name))
        await library.store(make_version(2, name))
    await library.activate("b", 1, author="ada")
    await library.activate("d", 2, author="ada")

    first = await library.list(limit=2)
    second = await library.list(after="b", limit=2)

    assert [(item.name, item.version, item.active_version) for item in (*first, *second)] == [
        ("a", 2, None),
        ("b", 2, 1),
        ("c", 2, None),
        ("d", 2, 2),
    ]


async def test_webhooks_and_schedules_without_a_version_run_the_active_version(
    engine: EmbeddedEngine,
) -> None:
    await store_versions(engine, 2)
    await engine.client.library.activate("flow", 1, author="ada")
    world = ClockAndIds(RealClock(), RandomIdGenerator())
    start = float(int(engine.clock.now())) + 100
    schedules = ScheduleStore(engine.backend, engine.clock, world.ids)
    await schedules.add(Schedule(id="s", workflow="flow", interval_s=60.0, starts_at=start))
    webhooks = WebhookStore(engine.backend, engine.clock)
    await webhooks.add(Webhook(workflow="flow", kind=WebhookKind.NONE))
    webhook = await webhooks.find("flow")
    assert webhook is not None
    receiver = WebhookReceiver(engine.client, engine.backend.archive, engine.clock, NoSecrets())

    scheduler = build_scheduler(engine.backend, world, engine.event_bus, engine.client)
    [tick] = await scheduler.dispatch(start)
    delivered = await receiver.receive(webhook, Delivery.from_pairs([], [], b"{}"))

    for execution_id in (tick.execution_id, delivered.execution_id):
        assert execution_id is not None
        assert (await engine.client.get_header(execution_id)).version == 1


async def test_an_unknown_version_is_not_activated(engine: EmbeddedEngine) -> None:
    library = engine.client.library
    await store_versions(engine, 1)

    for name, version in (("flow", 2), ("flow", 0), ("nope", 1), ("nope", None)):
        with pytest.raises(NotFoundError):
            await library.activate(name, version, author="ada")
    with pytest.raises(InputError, match="author"):
        await library.activate("flow", 1, author="x" * 300)

    assert list((await library.active("flow")).activations) == []


async def test_a_deleted_workflow_forgets_its_active_version(engine: EmbeddedEngine) -> None:
    library = engine.client.library
    await store_versions(engine, 2)
    await library.activate("flow", 1, author="ada")

    await library.delete("flow")
    await store_versions(engine, 2)

    assert (await library.find("flow")).version == 4
    assert list((await library.active("flow")).activations) == []


async def test_concurrent_activations_are_all_recorded_and_bounded(engine: EmbeddedEngine) -> None:
    library = engine.client.library
    await store_versions(engine, 2)

    await asyncio.gather(*(library.activate("flow", 1, author=f"a{n}") for n in range(4)))
    for number in range(25):
        await library.activate("flow", 2, author=f"b{number}")

    active = await library.active("flow")
    assert (active.version, len(active.activations)) == (2, 20)
    assert active.activations[0].activated_by == "b24"


async def test_an_author_with_control_characters_is_refused(engine: EmbeddedEngine) -> None:
    await store_versions(engine, 1)

    with pytest.raises(InputError, match=r"author: expected a printable text, got 'ada.*31m'"):
        await engine.client.library.activate("flow", 1, author="ada\x1b[31m")
