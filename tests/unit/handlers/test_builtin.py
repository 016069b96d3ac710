"""The handlers `input`, `output` and `python`, run by a worker."""

from pathlib import Path
from typing import Any

import pytest

from runnel.authoring.context import Context
from runnel.core.validation.handler_settings import HANDLER_SETTINGS
from runnel.core.workflow import CORE_HANDLERS
from runnel.engine.clock import RealClock
from runnel.handlers import create_builtin_registry
from tests.unit.engine.worker.worker_harness import WorkerHarness

HERE = "tests.unit.handlers.test_builtin"


def add(a: int, b: int = 1) -> int:
    return a + b


async def greet(name: str, ctx: Context) -> str:
    return f"{name} in {ctx.node_id}"


@pytest.fixture
def stage() -> WorkerHarness:
    return WorkerHarness(RealClock())


def python(stage: WorkerHarness, **config: Any) -> Any:
    return stage.task("python", config)


def test_the_registry_has_every_handler_that_a_worker_runs() -> None:
    assert create_builtin_registry().names() == [
        "call_external_service",
        "data_processor",
        "external_service",
        "input",
        "llm_service",
        "output",
        "python",
        "shell",
    ]


def test_validation_knows_exactly_the_handlers_that_exist() -> None:
    assert {*create_builtin_registry().names(), *CORE_HANDLERS} == HANDLER_SETTINGS.keys()


async def test_input_merges_the_executions_input_over_its_config(stage: WorkerHarness) -> None:
    task = stage.task("input", {"a": "default", "b": 2}, execution_input={"a": "given"})

    assert await stage.output(task) == {"a": "given", "b": 2}


async def test_input_returns_an_input_that_is_not_an_object_unchanged(stage: WorkerHarness) -> None:
    assert await stage.output(stage.task("input", {}, execution_input=[1, 2])) == [1, 2]


async def test_input_with_defaults_refuses_an_input_that_is_not_an_object(
    stage: WorkerHarness,
) -> None:
    failed = await stage.error(stage.task("input", {"a": 1}, execution_input=[1, 2]))

    assert "must be an object, got a list" in failed.error.message


async def test_output_returns_its_resolved_config(stage: WorkerHarness) -> None:
    task = stage.task("output", {"x": "{{ a.b }}"}, inputs={"a": {"b": [1]}})

    assert await stage.output(task) == {"x": [1]}


@pytest.mark.parametrize("mode", ["auto", "loop", "thread"])
async def test_python_calls_a_function_with_its_args(stage: WorkerHarness, mode: str) -> None:
    task = python(stage, function=f"{HERE}:add", args={"a": 2}, mode=mode)

    assert await stage.output(task) == 3


@pytest.mark.parametrize("mode", ["auto", "loop", "thread"])
async def test_python_passes_the_context_to_a_parameter_named_ctx(
    stage: WorkerHarness, mode: str
) -> None:
    task = python(stage, function=f"{HERE}:greet", args={"name": "Ada"}, mode=mode)

    assert await stage.output(task) == "Ada in node"


async def test_python_imports_modules_of_the_working_directory(
    stage: WorkerHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runnel_local_module.py").write_text("def answer():\n    return 42\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["/nowhere"])

    task = python(stage, function="runnel_local_module:answer")

    assert await stage.output(task) == 42


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (
            {},
            (
                "config.function: the handler 'python' needs this setting; expected the path of "
                "a function"
            ),
        ),
        (
            {"function": "json:dumps", "argz": {}},
            "config.argz: the handler 'python' has no such",
        ),
        ({"function": "json:dumps", "args": [1]}, "config.args: expected an object"),
        ({"function": "nosuch:f"}, "there is no module 'nosuch'"),
        ({"function": f"{HERE}:add", "args": {"c": 1}}, "does not accept these args"),
        ({"function": f"{HERE}:add", "args": {"a": 1}, "mode": "fast"}, "got 'fast'"),
    ],
)
async def test_python_explains_what_is_wrong_with_its_config(
    stage: WorkerHarness, config: dict[str, Any], sentence: str
) -> None:
    failed = await stage.error(stage.task("python", config))

    assert sentence in failed.error.message
    assert failed.error.retryable is False
