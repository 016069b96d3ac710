"""Small workflows that together cover every kind of change in the store."""

import asyncio

from runnel.authoring.context import Context
from runnel.authoring.registry import HandlerRegistry
from runnel.core.retry import RetryPolicy
from runnel.core.run_when import RunWhen
from runnel.core.values import INLINE_BYTES_MAX, Json
from runnel.core.workflow import Node, Workflow
from runnel.handlers import create_builtin_registry
from runnel.ports.store import CommitLimits
from simulation.crash_points.journal import RunJournal
from simulation.crash_points.scenario import Scenario, ScenarioCaller
from tests.core_driver import make_node, make_workflow

AT_ONCE = RetryPolicy(initial_delay=0.002, jitter=False)
SUCCEEDS_AT = 2


def scenarios() -> tuple[Scenario, ...]:
    return (
        _scenario("chain", chain(), input={"n": 1}),
        _scenario("diamond", diamond()),
        _scenario("map", mapped()),
        _scenario("retry", make_workflow(make_node("a", handler="fails_first", retry=AT_ONCE))),
        _scenario("fail_fast", fail_fast()),
        _scenario("skip", skip(), input={"n": 1}, is_held=True, caller_actions=triggers),
        _scenario("child", children()),
        # Small commits split some decisions.
        _scenario("sleep", sleep(), limits=CommitLimits(writes=3)),
        _scenario("signals", signals(), caller_actions=sends_signals),
        _scenario("key", keys()),
        _scenario("blob", blobs()),
        _scenario("cancel", cancelled(), caller_actions=cancels),
    )


def together() -> tuple[Scenario, ...]:
    """One workflow with most features of the others, for stores on which a point takes longer."""
    return (_scenario("together", all_together(), caller_actions=signals_and_cancels),)


# -- workflows -------------------------------------------------------------------------------------


def chain() -> Workflow:
    return make_workflow(
        make_node("a", config={"n": "{{ input.n }}"}),
        make_node("b", "a", config={"n": "{{ a.n }}", "more": [1, 2]}),
        make_node("c", "b", config={"n": "{{ b.n }}"}),
        output={"n": "{{ c.n }}", "more": "{{ b.more }}"},
    )


def diamond() -> Workflow:
    return make_workflow(
        make_node("a"), make_node("b", "a"), make_node("c", "a"), make_node("d", "b", "c")
    )


def mapped() -> Workflow:
    return make_workflow(
        make_node("a", config={"list": [1, 2, 3]}),
        make_node("each", "a", for_each="a.list", config={"n": "{{ item }}"}),
        make_node("join", "each", config={"all": "{{ each }}"}),
        max_concurrency=2,
    )


def fail_fast() -> Workflow:
    return make_workflow(
        make_node("a"),
        make_node("bad", "a", handler="fails"),
        make_node("after", "bad"),
        _signal("never", signal="never"),
        make_node("tidy", "bad", run_when=RunWhen.ONE_FAILED),
        make_node("always", "after", run_when=RunWhen.ALL_SETTLED),
    )


def skip() -> Workflow:
    return make_workflow(
        make_node("a", config={"n": "{{ input.n }}"}),
        make_node("b", "a", condition="a.n > 5"),
        make_node("c", "b"),
        make_node("d", "b", "a", run_when=RunWhen.NONE_FAILED),
        make_node("bad", handler="fails"),
        on_failure="continue",
    )


def children() -> Workflow:
    child = make_workflow(
        make_node("x", config={"n": "{{ input.n }}"}),
        make_node("y", "x", config={"n": "{{ x.n }}"}),
    )
    return make_workflow(
        make_node(
            "kids",
            handler="workflow",
            for_each="[1, 2]",
            config={"input": {"n": "{{ item }}"}},
            child=child,
        ),
        make_node("z", "kids", config={"all": "{{ kids }}"}),
    )


def sleep() -> Workflow:
    return make_workflow(
        make_node("nap", handler="sleep", config={"seconds": 0.004}),
        _signal("late", signal="late", timeout_seconds=0.006, on_timeout="complete"),
        make_node("b", "nap", "late", config={"ok": True}),
        timeout_seconds=60.0,
        sla_seconds=50.0,
    )


def signals() -> Workflow:
    return make_workflow(
        make_node("a"),
        _signal("first", "a", signal="early"),
        _signal("second", "first", signal="late"),
        output=["{{ first }}", "{{ second }}"],
    )


def keys() -> Workflow:
    nodes = [make_node(f"n{i}", handler="works_alone", concurrency_key="k") for i in range(2)]
    return make_workflow(*nodes)


def blobs() -> Workflow:
    return make_workflow(
        make_node("a", handler="large"),
        make_node("b", "a", condition="a | length > 5", config={"n": "{{ a | length }}"}),
        output={"a": "{{ a }}", "n": "{{ b.n }}"},
    )


def cancelled() -> Workflow:
    return make_workflow(
        make_node("a"),
        make_node("hang", "a", handler="hangs"),
        _signal("never", "a", signal="never"),
        make_node("after", "hang", "never"),
        make_node("tidy", "after", run_when=RunWhen.ALL_SETTLED),
    )


def all_together() -> Workflow:
    child = make_workflow(make_node("x", handler="works_alone", concurrency_key="k"))
    return make_workflow(
        make_node("first", handler="fails_first", retry=AT_ONCE),
        _signal("go", signal="go"),
        make_node("kids", "first", handler="workflow", for_each="[1, 2]", child=child),
        make_node("big", "go", handler="large"),
        make_node("small", "big", condition="big | length > 5", config={"n": "{{ big | length }}"}),
        make_node("hang", "kids", "small", handler="hangs"),
        make_node("tidy", "hang", run_when=RunWhen.ALL_SETTLED),
        timeout_seconds=60.0,
    )


# -- callers ---------------------------------------------------------------------------------------


async def triggers(caller: ScenarioCaller) -> None:
    await caller.call_once(
        "triggered", lambda: caller.client.trigger(caller.execution_id, {"n": 2})
    )


async def sends_signals(caller: ScenarioCaller) -> None:
    async def send(name: str) -> None:
        await caller.client.signal(caller.execution_id, name, {"by": name}, signal_id=name)

    await caller.call_once("early", lambda: send("early"))
    await caller.wait_until_reached("second")
    await caller.call_once("late", lambda: send("late"))


async def cancels(caller: ScenarioCaller) -> None:
    await caller.wait_until_reached("hang")
    await caller.wait_until_reached("never")
    await caller.call_once(
        "cancelled", lambda: caller.client.cancel(caller.execution_id, reason="no")
    )


async def signals_and_cancels(caller: ScenarioCaller) -> None:
    id_ = caller.execution_id
    await caller.call_once("go", lambda: caller.client.signal(id_, "go", "went", signal_id="go"))
    await caller.wait_until_reached("hang")
    await caller.call_once("cancelled", lambda: caller.client.cancel(id_, reason="no"))


# -- handlers --------------------------------------------------------------------------------------


async def work(config: Json, ctx: Context) -> Json:
    return config or {"by": ctx.node_id, "from": sorted(ctx.inputs)}


async def fails_first(config: Json, ctx: Context) -> Json:
    if ctx.attempt < SUCCEEDS_AT:
        raise ConnectionError("not yet")
    return "at last"


async def fails(config: Json, ctx: Context) -> Json:
    raise ValueError("never")


async def hangs(config: Json, ctx: Context) -> Json:
    await ctx.wait_cancelled()
    return None


async def large(config: Json, ctx: Context) -> Json:
    return ctx.node_id * INLINE_BYTES_MAX


def handlers(journal: RunJournal) -> HandlerRegistry:
    running: set[str] = set()

    async def works_alone(config: Json, ctx: Context) -> Json:
        if running:
            raise ValueError(f"{ctx.node_id} and {running} run at the same time")
        running.add(ctx.node_id)
        await asyncio.sleep(0)
        running.clear()
        return ctx.node_id

    registry = create_builtin_registry()
    for function in (work, fails_first, fails, hangs, large, works_alone):
        registry.register(function.__name__, journal.wrap_handler(function))
    return registry


def _scenario(name: str, definition: Workflow, **fields: object) -> Scenario:
    return Scenario(name=name, workflow=definition, handlers=handlers, **fields)  # type: ignore[arg-type]


def _signal(id_: str, *parents: str, **config: Json) -> Node:
    return make_node(id_, *parents, handler="wait_for_signal", config=config)
