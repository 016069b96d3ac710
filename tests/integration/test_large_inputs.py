"""Large maps and graphs complete with all their results."""

from pathlib import Path

import pytest

from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler, open_engine, run_to_end

ITEMS = 100_000


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_a_map_over_100_000_items_completes(
    kind: str, redis_url: str | None, tmp_path: Path
) -> None:
    definition = make_workflow(
        make_node("each", for_each="input.items", config={"n": "{{ item }}"}), output="{{ each }}"
    )

    async with open_engine(
        kind, tmp_path, WorkHandler(), concurrency=64, redis_url=redis_url
    ) as engine:
        view = await run_to_end(engine, definition, {"items": list(range(ITEMS))})

    assert view.status == "COMPLETED"
    assert view.nodes["each"].items == ITEMS
    assert [item["n"] for item in view.output] == list(range(ITEMS))


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis"])
async def test_a_fan_out_to_a_thousand_nodes_and_a_fan_in_completes(
    kind: str, redis_url: str | None, tmp_path: Path
) -> None:
    middle = [make_node(f"m{i}", "a", config={"n": i}) for i in range(1_000)]
    definition = make_workflow(
        make_node("a"), *middle, make_node("z", *[node.id for node in middle])
    )

    async with open_engine(
        kind, tmp_path, WorkHandler(), concurrency=64, redis_url=redis_url
    ) as engine:
        view = await run_to_end(engine, definition)

    assert view.status == "COMPLETED"
    assert view.output == {f"m{i}": {"n": i} for i in range(1_000)}
