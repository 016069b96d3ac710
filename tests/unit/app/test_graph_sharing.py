"""One process compiles the graph of a workflow once: loader, client and orchestrator share it."""

from pathlib import Path

import pytest

from runnel.app.embedded_engine import run_engine
from runnel.app.wiring import build_memory_engine
from runnel.authoring.input_schema import CheckedInput
from runnel.cli.session.inputs import load_graph
from runnel.client import values
from runnel.core.graph import Graph
from runnel.core.ids import DefinitionHash
from runnel.core.states import ExecutionState
from runnel.core.workflow import Workflow, decode_workflow
from runnel.settings.model import Settings
from tests.core_driver import make_node, make_workflow

DOCUMENT = """
name: pair
input:
  type: object
  required: [count]
nodes:
  - id: first
    handler: data_processor
    config: {operation: merge, data: [{total: "{{ input.count }}", a: 1}]}
  - id: second
    handler: data_processor
    config: {operation: merge, data: ["{{ first }}"]}
"""


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the workflows that this process has compiled since the test began."""
    names: list[str] = []
    compile_graph = Graph.__init__

    def count(graph: Graph, workflow: Workflow, hash_: DefinitionHash | None = None) -> None:
        names.append(workflow.name)
        compile_graph(graph, workflow, hash_)

    monkeypatch.setattr(Graph, "__init__", count)
    return names


async def test_an_embedded_run_of_a_file_compiles_its_graph_once(
    tmp_path: Path, compiled: list[str]
) -> None:
    file = tmp_path / "pair.yaml"
    file.write_text(DOCUMENT)

    graph = load_graph(file, Settings())
    async with run_engine(build_memory_engine(Settings())) as engine:
        execution_id = await engine.client.submit(graph, {"count": 3})
        execution = await engine.client.wait(execution_id, timeout_s=10)

    assert execution.status is ExecutionState.COMPLETED
    assert compiled == ["pair"]


async def test_an_input_that_was_checked_is_not_checked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pair.yaml"
    file.write_text(DOCUMENT)
    checked: list[object] = []

    def accept(_schema: object, value: object, **_: object) -> bool:
        checked.append(value)
        return True

    monkeypatch.setattr(values, "is_surely_valid", accept)
    graph = load_graph(file, Settings())
    engine = build_memory_engine(Settings())

    await engine.claim_home_partition()
    await engine.client.submit(graph, CheckedInput({"count": 3}))
    await engine.client.submit(graph, {"count": 4})

    assert checked == [{"count": 4}]


async def test_an_absent_input_is_checked_as_the_empty_object_that_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pair.yaml"
    file.write_text(DOCUMENT)
    checked: list[object] = []
    monkeypatch.setattr(values, "check_input", lambda _workflow, value, **_: checked.append(value))
    graph = load_graph(file, Settings())
    engine = build_memory_engine(Settings())

    await engine.claim_home_partition()
    await engine.client.submit(graph, CheckedInput(None))

    assert checked == [{}]


async def test_a_workflow_from_python_code_is_compiled_once(compiled: list[str]) -> None:
    workflow = make_workflow(
        make_node("a", handler="data_processor", config={"operation": "merge", "data": [{"n": 1}]})
    )

    async with run_engine(build_memory_engine(Settings())) as engine:
        for _ in range(2):
            execution_id = await engine.client.submit(workflow)
            await engine.client.wait(execution_id, timeout_s=10)

    assert compiled == [workflow.name]


async def test_a_shared_graph_has_the_configs_that_another_process_loads(tmp_path: Path) -> None:
    """A restarted process must send the same bytes to handlers, so the keys are sorted."""
    file = tmp_path / "pair.yaml"
    file.write_text(DOCUMENT)
    graph = load_graph(file, Settings())

    async with run_engine(build_memory_engine(Settings())) as engine:
        await engine.client.submit(graph, {"count": 3})
        stored = await engine.backend.archive.get_definition(graph.hash)

    assert stored is not None
    loaded = Graph(decode_workflow(stored.document))
    assert read_configs(graph) == read_configs(loaded)
    assert read_configs(graph)[0].startswith(b'{"data":[{"a":1,"total":')


def read_configs(graph: Graph) -> list[bytes]:
    return [bytes(node.config_raw) for node in graph.nodes]
