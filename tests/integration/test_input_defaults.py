"""Defaults of inputs: stored with the execution, so that every template reads them."""

from pathlib import Path

import msgspec
import pytest

import runnel
from runnel.client.reruns import RerunSpec
from runnel.errors import InvalidInputError
from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler, get_node_states, open_engine, run_to_end, wait_for_end
from tests.integration import decorated_flows as flows
from tests.workflow_text import load_text

TENANTS = load_text(
    """
name: tenants
input:
  properties:
    tenant: {type: string, default: acme}
    note: {type: [string, 'null'], default: null}
output: {tenant: "{{ input.tenant }}", note: "{{ input.note }}"}
nodes:
- id: a
  handler: work
  condition: input.tenant == 'acme'
  concurrency_key: "{{ input.tenant }}"
  cache: {key: "{{ input.tenant }}"}
  config: {v: "{{ input.tenant }}"}
"""
)
FILLED = {"tenant": "acme", "note": None}
WITHOUT_DEFAULTS = msgspec.structs.replace(
    TENANTS, input={"type": "object"}, output=None, nodes=(make_node("a"),)
)


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis"])
async def test_every_template_reads_the_default_of_the_schema(
    kind: str, redis_url: str | None, tmp_path: Path
) -> None:
    async with open_engine(kind, tmp_path, WorkHandler(), redis_url=redis_url) as engine:
        view = await run_to_end(engine, TENANTS, {})

    assert get_node_states(view) == {"a": "COMPLETED"}
    assert view.output == FILLED
    assert view.input == FILLED


async def test_a_given_value_replaces_the_default(tmp_path: Path) -> None:
    async with open_engine("memory", tmp_path, WorkHandler()) as engine:
        view = await run_to_end(engine, TENANTS, {"tenant": "other"})

    assert view.input == {"tenant": "other", "note": None}
    assert get_node_states(view) == {"a": "SKIPPED"}


async def test_an_input_that_does_not_fit_is_refused_before_defaults_are_used(
    tmp_path: Path,
) -> None:
    async with open_engine("memory", tmp_path, WorkHandler()) as engine:
        with pytest.raises(InvalidInputError, match="expected a text, got 3"):
            await engine.client.submit(TENANTS, {"tenant": 3})


async def test_a_held_execution_starts_with_the_defaults(tmp_path: Path) -> None:
    async with open_engine("sqlite", tmp_path, WorkHandler()) as engine:
        held = await engine.client.hold(TENANTS)
        replaced = await engine.client.hold(TENANTS, {"tenant": "x"})

        await engine.client.trigger(held)
        await engine.client.trigger(replaced, {"note": "mine"})

        assert (await wait_for_end(engine, held)).output == FILLED
        assert (await wait_for_end(engine, replaced)).output == {"tenant": "acme", "note": "mine"}


async def test_a_rerun_of_the_newest_version_gets_its_defaults(tmp_path: Path) -> None:
    async with open_engine("sqlite", tmp_path, WorkHandler()) as engine:
        former = await run_to_end(engine, WITHOUT_DEFAULTS, {})
        await run_to_end(engine, TENANTS, {"tenant": "other"})

        new_id = await engine.client.rerun(former.execution_id, RerunSpec(is_newest=True))

        assert (await wait_for_end(engine, new_id)).input == FILLED


async def test_a_rerun_with_another_input_gets_the_defaults(tmp_path: Path) -> None:
    async with open_engine("sqlite", tmp_path, WorkHandler()) as engine:
        former = await run_to_end(engine, TENANTS, {})

        new_id = await engine.client.rerun(former.execution_id, input={"note": "new"})

        assert (await wait_for_end(engine, new_id)).output == {"tenant": "acme", "note": "new"}


async def test_a_child_gets_the_defaults_of_its_own_schema(tmp_path: Path) -> None:
    parent = make_workflow(
        make_node("child", handler="workflow", config={"input": {"note": "n"}}, child=TENANTS)
    )
    async with open_engine("sqlite", tmp_path, WorkHandler()) as engine:
        view = await run_to_end(engine, parent)

    assert view.nodes["child"].output == {"tenant": "acme", "note": "n"}


async def test_an_idempotency_key_is_the_same_with_and_without_filled_defaults(
    tmp_path: Path,
) -> None:
    async with open_engine("sqlite", tmp_path, WorkHandler()) as engine:
        first = await engine.client.submit(TENANTS, {}, idempotency_key="k")
        second = await engine.client.submit(TENANTS, {}, idempotency_key="k")

        assert first == second


async def test_a_default_of_the_signature_reaches_keys_and_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNNEL_DATA_DIR", str(tmp_path / "data"))

    result = await runnel.run(flows.greeting)

    assert result == {"greeting": "hello acme", "note": None}
