"""The examples of the documents that describe Runnel run as they are written."""

import json
from pathlib import Path

import pytest

from tests.e2e.program import Program

pytestmark = pytest.mark.e2e

MOCKED = {"RUNNEL_MOCK_SERVICES": "true"}


def node(node_id: str, handler: str, *parents: str, **config: object) -> dict[str, object]:
    """Returns a node with the four keys that the documents name."""
    return {"node_id": node_id, "handler": handler, "config": config, "dependencies": list(parents)}


RESULT_OF_FETCH = {"mock": True, "method": "GET", "url": "https://mock"}
COMPLETION = f"This is a mock completion of: {json.dumps(RESULT_OF_FETCH)}"
EXAMPLES = {
    "the prompt is the result of another node": (
        [
            node("fetch_data", "external_service"),
            node("summary", "llm_service", "fetch_data", prompt="{{ fetch_data.result }}"),
        ],
        COMPLETION,
        "{{ summary.result }}",
    ),
    "linear chain": (
        [
            node("A", "external_service"),
            node("B", "llm_service", "A", prompt="{{ A.result }}"),
            node("C", "data_processor", "B", data="{{ B.result }}"),
        ],
        {"data": COMPLETION},
        "{{ C }}",
    ),
    "fan-out and fan-in": (
        [
            node("A", "input"),
            node("B", "call_external_service", "A"),
            node("C", "call_external_service", "A"),
            node("D", "data_processor", "B", "C", b="{{ B.result }}", c="{{ C.result }}"),
        ],
        {"b": RESULT_OF_FETCH, "c": RESULT_OF_FETCH},
        "{{ D }}",
    ),
    "the unified worker's handlers": (
        [
            node("input", "input"),
            node("call", "call_external_service", "input"),
            node("ask", "llm_service", "call", prompt="{{ input.question }}"),
            node("output", "output", "ask", answer="{{ ask.result }}", asked="{{ input }}"),
        ],
        {"answer": "This is a mock completion of: 42", "asked": {"question": 42}},
        "{{ output }}",
    ),
    "node ids are numbers": (
        [
            node("1", "external_service"),
            node("2", "data_processor", "1", first="{{ 1.result }}"),
            node("3", "data_processor", "2", same="{{ 2.first.mock }}", key="{{ nodes.1.status }}"),
        ],
        {"same": True, "key": 200},
        "{{ nodes[3] }}",
    ),
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_the_documents_runs_as_it_is_written(tmp_path: Path, example: str) -> None:
    nodes, expected, output = EXAMPLES[example]
    flow = {"name": "example", "nodes": nodes, "output": output}
    (tmp_path / "flow.json").write_text(json.dumps(flow))

    run = Program(tmp_path).run("run", "flow.json", "--input", "question=42", **MOCKED)

    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == expected


def test_the_switch_also_mocks_a_service_with_an_address(tmp_path: Path) -> None:
    fetch = node("fetch", "external_service", url="https://service.invalid")
    ask = node("ask", "llm_service", "fetch", model="small-1", prompt="{{ fetch.result.url }}")
    (tmp_path / "flow.json").write_text(json.dumps({"name": "example", "nodes": [fetch, ask]}))

    run = Program(tmp_path).run("run", "flow.json", **MOCKED)

    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["result"].endswith("https://service.invalid")


def test_without_the_switch_a_service_without_an_address_is_refused(tmp_path: Path) -> None:
    flow = {"name": "example", "nodes": [node("fetch_data", "external_service")]}
    (tmp_path / "flow.json").write_text(json.dumps(flow))

    refused = Program(tmp_path).run("run", "flow.json")

    assert refused.returncode == 2
    assert "RUNNEL_MOCK_SERVICES=true" in refused.stderr


def test_a_stored_workflow_is_mocked_only_while_the_switch_is_on(tmp_path: Path) -> None:
    flow = {"name": "example", "nodes": [node("fetch_data", "external_service")]}
    (tmp_path / "flow.json").write_text(json.dumps(flow))
    program = Program(tmp_path)

    stored = program.run("workflows", "store", "flow.json", **MOCKED)
    mocked = program.run("run", "example", **MOCKED)
    plain = program.run("run", "example")

    assert stored.returncode == 0, stored.stderr
    assert mocked.returncode == 0, mocked.stderr
    assert plain.returncode == 1
    assert "config.url" in plain.stderr


def test_the_result_of_a_mock_is_not_cached(tmp_path: Path) -> None:
    fetch = node("fetch", "external_service", url="https://service.invalid")
    fetch |= {"cache": {"ttl_seconds": 600}, "retry": {"max_retries": 0}}
    (tmp_path / "flow.json").write_text(json.dumps({"name": "example", "nodes": [fetch]}))
    program = Program(tmp_path)

    mocked = program.run("run", "flow.json", **MOCKED)
    plain = program.run("run", "flow.json")

    assert mocked.returncode == 0, mocked.stderr
    assert plain.returncode == 1
    assert "service.invalid" in plain.stderr
