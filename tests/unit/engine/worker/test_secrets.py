"""Secrets are filled in by the worker, and leave it neither by results nor by errors."""

import asyncio
import base64
import logging
from typing import Any

import msgspec
import pytest

from runnel.authoring.context import Context
from runnel.cli.logs import show_logs
from runnel.core.commands import TaskCompleted, TaskFailed, TaskSkipped
from runnel.core.json_types import Json
from runnel.core.retry import RetryPolicy
from runnel.engine.worker.configs import config_of
from runnel.errors import Skip
from runnel.runtime.clock import RealClock
from runnel.runtime.secret_values import KnownSecrets
from tests.unit.engine.worker.stage import Stage

KEY = 'sk-"geheim"/ä 42'
SECRETS = KnownSecrets({"key": KEY, "pin": "1234"})


@pytest.fixture
def stage() -> Stage:
    return Stage(RealClock())


class Seen:
    def __init__(self) -> None:
        self.configs: list[Json] = []

    def __call__(self, config: Json, ctx: Context) -> Json:
        self.configs.append(config)
        return config


async def test_a_handler_gets_the_value_and_its_output_does_not_have_it(stage: Stage) -> None:
    seen = Seen()
    stage.handlers.register("see", seen)
    config = {"a": "{{ secrets.key }}", "b": "Bearer {{ secrets.key }}!", "n": [{"1234": 12345}]}

    output = await stage.output(stage.task("see", config), secrets=SECRETS)

    assert seen.configs == [{"a": KEY, "b": f"Bearer {KEY}!", "n": [{"1234": 12345}]}]
    assert output == {"a": "***", "b": "Bearer ***!", "n": [{"***": 12345}]}


async def test_an_output_is_left_alone_by_tasks_that_name_no_secret(stage: Stage) -> None:
    output = await stage.output(stage.task("output", {"pin": "1234"}), secrets=SECRETS)

    assert output == {"pin": "1234"}


@pytest.mark.parametrize(
    "config",
    ["{{ secrets.nokey }}", "x{{ secrets.nokey }}", "{{ secrets.nokey | upper }}"],
)
async def test_a_missing_secret_fails_the_node_for_good(stage: Stage, config: str) -> None:
    failed = await stage.error(stage.task("output", {"a": config}), secrets=SECRETS)

    assert failed.error.message.endswith(
        "this worker has no secret 'nokey'; set RUNNEL_SECRET_NOKEY where it runs, or add it to "
        "the file of RUNNEL_SECRETS_FILE"
    )
    assert not RetryPolicy().is_retryable(failed.error)


async def test_a_secret_may_be_optional(stage: Stage) -> None:
    config = {"a": "{{ secrets.nokey | default('none') }}", "b": "{{ secrets.key is defined }}"}

    output = await stage.output(stage.task("output", config), secrets=SECRETS)

    assert output == {"a": "none", "b": True}


@pytest.mark.parametrize("config", [{"a": "{{ secrets }}"}, {"a": "{{ secrets | tojson }}"}])
async def test_all_secrets_together_can_not_be_read(stage: Stage, config: Json) -> None:
    """Validation refuses it at submit; a worker does not rely on that."""
    failed = await stage.error(stage.task("output", config), secrets=SECRETS)

    assert "is not the name of one secret" in failed.error.message


def raises_with(shape: str) -> Any:
    def fail(config: Json, ctx: Context) -> Json:
        raise ConnectionError(f"no answer to {shape}")

    return fail


@pytest.mark.parametrize(
    "shape",
    [
        KEY,
        repr(KEY),
        "sk-%22geheim%22%2F%C3%A4%2042",
        "sk-%22geheim%22%2F%C3%A4+42",
        'sk-\\"geheim\\"/ä 42',
        base64.b64encode(KEY.encode()).decode(),
    ],
)
async def test_an_error_does_not_tell_a_secret_in_any_shape(stage: Stage, shape: str) -> None:
    stage.handlers.register("fail", raises_with(shape))

    failed = await stage.error(stage.task("fail", {}), secrets=SECRETS)

    assert "no answer to" in failed.error.message
    assert "geheim" not in str(failed)
    assert base64.b64encode(KEY.encode()).decode()[:12] not in str(failed)
    assert "***" in failed.error.message
    assert failed.error.traceback is not None


async def test_a_reason_to_skip_does_not_tell_it_either(stage: Stage) -> None:
    def skip(config: Json, ctx: Context) -> Json:
        raise Skip(f"nothing to do for {config['key']}")

    stage.handlers.register("skip", skip)

    skipped = await stage.run(stage.task("skip", {"key": "{{ secrets.key }}"}), secrets=SECRETS)

    assert isinstance(skipped, TaskSkipped)
    assert skipped.reason == "nothing to do for ***"


async def test_code_in_a_process_of_its_own_gets_it_and_does_not_tell(stage: Stage) -> None:
    config = {
        "function": "tests.unit.engine.worker.test_secrets:shout",
        "args": {"key": "{{ secrets.key }}"},
        "mode": "process",
    }

    failed = await stage.error(stage.task("python", config), secrets=SECRETS)

    assert isinstance(failed, TaskFailed)
    assert failed.error.message == "*** has 16 characters"


def shout(key: str) -> None:
    raise RuntimeError(f"{key} has {len(key)} characters")


async def test_the_name_of_an_input_is_not_a_secret(stage: Stage) -> None:
    """A value that looks like a template is not rendered again."""
    task = stage.task(
        "output", {"a": "{{ input.text }}"}, execution_input={"text": "{{ secrets.key }}"}
    )

    assert await stage.output(task, secrets=SECRETS) == {"a": "{{ secrets.key }}"}


def test_log_lines_of_the_command_line_do_not_show_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])

    show_logs(SECRETS.hide)
    root.warning("the key is %s", KEY)

    assert capsys.readouterr().err == "warning: the key is ***\n"


def test_a_config_knows_which_secrets_it_needs() -> None:
    raw = msgspec.Raw(b'{"a": "{{ secrets.x }} {{ secrets[\'y\'] }} {{ input.z }}"}')

    assert config_of(raw).secrets == {"x", "y"}


async def test_a_cached_result_is_found_by_the_name_of_a_secret(stage: Stage) -> None:
    """A key of the value could be tried out by whoever reads the store."""
    fields: dict[str, Any] = {"cache_key": msgspec.Raw(b"null"), "cache_ttl_s": 60.0}
    config = {"a": "{{ secrets.key }}"}
    seen = Seen()
    stage.handlers.register("see", seen)

    await stage.run(stage.task("see", config, **fields), secrets=SECRETS)
    stage.stop = asyncio.Event()
    async with stage.working(secrets=KnownSecrets({"key": "another value"})):
        await stage.issue(stage.task("see", config, node="b", **fields))
        results = await stage.results(2)

    outputs = [each.output.decode() for each in results if isinstance(each, TaskCompleted)]
    assert outputs == [{"a": "***"}, {"a": "***"}]
    assert len(seen.configs) == 1
