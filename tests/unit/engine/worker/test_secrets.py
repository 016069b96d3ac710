"""The worker resolves secrets, and neither results nor errors reveal them."""

import asyncio
import base64
import html
import json
import logging
import re
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest

from runnel.app.secrets import KnownSecrets
from runnel.authoring.context import Context
from runnel.cli.session.run_locally import show_logs
from runnel.core.commands import TaskCompleted, TaskFailed, TaskSkipped
from runnel.core.retry import RetryPolicy
from runnel.core.values import Json
from runnel.engine.clock import RealClock
from runnel.engine.worker.config_templates import compile_config
from runnel.errors import Skip
from tests.unit.engine.worker.worker_harness import WorkerHarness

KEY = 'sk-"geheim"/ä 42'
SECRETS = KnownSecrets({"key": KEY, "pin": "1234"})


@pytest.fixture
def stage() -> WorkerHarness:
    return WorkerHarness(RealClock())


class Seen:
    def __init__(self) -> None:
        self.configs: list[Json] = []

    def __call__(self, config: Json, ctx: Context) -> Json:
        self.configs.append(config)
        return config


async def test_a_handler_gets_the_secret_and_its_output_is_redacted(
    stage: WorkerHarness,
) -> None:
    seen = Seen()
    stage.handlers.register("see", seen)
    config = {"a": "{{ secrets.key }}", "b": "Bearer {{ secrets.key }}!", "n": [{"1234": 12345}]}

    output = await stage.output(stage.task("see", config), secrets=SECRETS)

    assert seen.configs == [{"a": KEY, "b": f"Bearer {KEY}!", "n": [{"1234": 12345}]}]
    assert output == {"a": "***", "b": "Bearer ***!", "n": [{"***": 12345}]}


async def test_the_output_of_a_task_without_secrets_is_not_redacted(stage: WorkerHarness) -> None:
    output = await stage.output(stage.task("output", {"pin": "1234"}), secrets=SECRETS)

    assert output == {"pin": "1234"}


@pytest.mark.parametrize(
    "config",
    ["{{ secrets.nokey }}", "x{{ secrets.nokey }}", "{{ secrets.nokey | upper }}"],
)
async def test_a_missing_secret_fails_the_node_without_a_retry(
    stage: WorkerHarness, config: str
) -> None:
    failed = await stage.error(stage.task("output", {"a": config}), secrets=SECRETS)

    assert failed.error.message.endswith(
        "this worker has no secret 'nokey'; set RUNNEL_SECRET_NOKEY where it runs, or add it to "
        "the file of RUNNEL_SECRETS_FILE"
    )
    assert not RetryPolicy().is_retryable(failed.error)


async def test_a_secret_may_be_optional(stage: WorkerHarness) -> None:
    config = {"a": "{{ secrets.nokey | default('none') }}", "b": "{{ secrets.key is defined }}"}

    output = await stage.output(stage.task("output", config), secrets=SECRETS)

    assert output == {"a": "none", "b": True}


@pytest.mark.parametrize("config", [{"a": "{{ secrets }}"}, {"a": "{{ secrets | tojson }}"}])
async def test_all_secrets_together_can_not_be_read(stage: WorkerHarness, config: Json) -> None:
    """Validation refuses it at submit. The worker does not rely on that."""
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
async def test_an_error_does_not_reveal_a_secret_in_any_encoding(
    stage: WorkerHarness, shape: str
) -> None:
    stage.handlers.register("fail", raises_with(shape))

    failed = await stage.error(stage.task("fail", {}), secrets=SECRETS)

    assert "no answer to" in failed.error.message
    assert "geheim" not in str(failed)
    assert base64.b64encode(KEY.encode()).decode()[:12] not in str(failed)
    assert "***" in failed.error.message
    assert failed.error.traceback is not None


async def test_a_skip_reason_does_not_reveal_a_secret(stage: WorkerHarness) -> None:
    def skip(config: Json, ctx: Context) -> Json:
        raise Skip(f"nothing to do for {config['key']}")

    stage.handlers.register("skip", skip)

    skipped = await stage.run(stage.task("skip", {"key": "{{ secrets.key }}"}), secrets=SECRETS)

    assert isinstance(skipped, TaskSkipped)
    assert skipped.reason == "nothing to do for ***"


async def test_code_in_a_child_process_gets_the_secret_and_does_not_reveal_it(
    stage: WorkerHarness,
) -> None:
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


async def test_the_name_of_an_input_is_not_a_secret(stage: WorkerHarness) -> None:
    """A value that contains a template is not rendered again."""
    task = stage.task(
        "output", {"a": "{{ input.text }}"}, execution_input={"text": "{{ secrets.key }}"}
    )

    assert await stage.output(task, secrets=SECRETS) == {"a": "{{ secrets.key }}"}


def test_log_lines_of_the_command_line_do_not_show_a_secret(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])

    show_logs(SECRETS.redact)
    root.warning("the key is %s", KEY)

    assert capsys.readouterr().err == "warning: the key is ***\n"


def test_a_config_knows_which_secrets_it_needs() -> None:
    raw = msgspec.Raw(b'{"a": "{{ secrets.x }} {{ secrets[\'y\'] }} {{ input.z }}"}')

    assert compile_config(raw).secrets == {"x", "y"}


async def test_a_cache_key_contains_the_name_of_a_secret_and_not_its_value(
    stage: WorkerHarness,
) -> None:
    """A reader of the store could guess the value from a key that is derived from it."""
    fields: dict[str, Any] = {"cache_key": msgspec.Raw(b"null"), "cache_ttl_s": 60.0}
    config = {"a": "{{ secrets.key }}"}
    seen = Seen()
    stage.handlers.register("see", seen)

    await stage.run(stage.task("see", config, **fields), secrets=SECRETS)
    stage.stop = asyncio.Event()
    async with stage.working(secrets=KnownSecrets({"key": "another value"})):
        await stage.issue(stage.task("see", config, node="b", **fields))
        results = await stage.results(2)

    outputs = [report.output.decode() for report in results if isinstance(report, TaskCompleted)]
    assert outputs == [{"a": "***"}, {"a": "***"}]
    assert len(seen.configs) == 1


async def run_with_secret(stage: WorkerHarness, code: Any, **fields: Any) -> Json:
    """Returns the output of code that receives the key."""

    def tell(config: Json, ctx: Context) -> Json:
        return code(config["key"])

    stage.handlers.register("tell", tell)
    return await stage.output(
        stage.task("tell", {"key": "{{ secrets.key }}"}, **fields), secrets=SECRETS
    )


def in_small_letters(url: str) -> str:
    return re.sub("%..", lambda match: match[0].lower(), url)


ECHOES: dict[str, Any] = {
    "in JSON inside of a text": lambda key: json.dumps({"you sent": key}),
    "in JSON as others write it": lambda key: msgspec.json.encode({"you sent": key}).decode(),
    "in JSON as PHP writes it": lambda key: json.dumps({"you sent": key}).replace("/", "\\/"),
    "as Basic": lambda key: base64.b64encode(b"ada:" + key.encode()).decode(),
    "as Basic with another name": lambda key: base64.b64encode(b"grace:" + key.encode()).decode(),
    "in a cookie": lambda key: base64.urlsafe_b64encode(b"u=a;k=" + key.encode() + b";").decode(),
    "as digits": lambda key: key.encode().hex(),
    "in HTML": lambda key: f"<p>{html.escape(key)}</p>",
    "in a URL with small letters": lambda key: (
        quote(key, safe="").replace("%2F", "%2f").replace("%C3%A4", "%c3%a4")
    ),
    "as bytes": lambda key: repr(key.encode()),
    "in a URL as httpx writes it": lambda key: str(httpx.URL(f"http://a/{key}")),
    "in JSON in JSON in JSON": lambda key: json.dumps(json.dumps(json.dumps({"a": key}))),
    "in a URL in a URL": lambda key: quote(quote(key, safe=""), safe=""),
    "in HTML by numbers": lambda key: re.sub(r"[^\w-]|ä", lambda match: f"&#{ord(match[0])};", key),
    "as a key": lambda key: {key: 1},
}


@pytest.mark.parametrize("name", ECHOES)
async def test_an_output_does_not_reveal_a_secret_in_any_encoding(
    stage: WorkerHarness, name: str
) -> None:
    stored = msgspec.json.encode(await run_with_secret(stage, ECHOES[name]))

    written = {
        "geheim",
        KEY.encode().hex()[8:20],
        *(base64.b64encode(b"x" * before + KEY.encode()).decode()[8:16] for before in range(3)),
    }
    assert b"***" in stored
    assert not [text for text in written if text.encode() in stored]


@pytest.mark.parametrize("number", [1234, -1234, 1234.0])
async def test_a_number_that_is_a_secret_is_redacted(stage: WorkerHarness, number: float) -> None:
    output = await run_with_secret(
        stage, lambda _: {"pin": number, "other": 51234, "third": 1.1234}
    )

    assert output["pin"] in {"***", "-***"}
    assert (output["other"], output["third"]) == (51234, 1.1234)


async def test_an_output_may_be_nested_deeply(stage: WorkerHarness) -> None:
    depth = 800

    output = await run_with_secret(
        stage, lambda _: msgspec.json.decode("[" * depth + "1234" + "]" * depth)
    )

    assert msgspec.json.encode(output) == b"[" * depth + b'"***"' + b"]" * depth


@pytest.mark.parametrize("chars", range(1_980, 2_000))
async def test_a_shortened_message_does_not_end_with_half_a_secret(
    stage: WorkerHarness, chars: int
) -> None:
    stage.handlers.register("fail", raises_with("x" * (chars - 13) + KEY + "y" * 8_000))

    failed = await stage.error(stage.task("fail", {}), secrets=SECRETS)

    told_of_it = failed.error.message.rpartition("x")[2]
    assert failed.error.message.endswith("…")
    assert told_of_it in {"***…", "***y…"} or len(told_of_it) <= len(KEY) // 2


def test_the_end_of_a_secret_is_redacted_where_the_beginning_of_a_text_was_cut() -> None:
    secrets = KnownSecrets({"key": "correct horse battery staple"})

    assert secrets.redact("…battery staple is wrong") == "…*** is wrong"
    assert secrets.redact("battery staple is wrong") == "battery staple is wrong"
    assert secrets.redact("no…staple…correct hor…") == "no…staple…***…"
    assert KnownSecrets({}).redact("cut…") == "cut…"


async def test_a_cached_node_may_apply_a_filter_to_a_secret(
    stage: WorkerHarness,
) -> None:
    """The placeholder, instead of the value, would fit no filter."""
    fields: dict[str, Any] = {"cache_key": msgspec.Raw(b"null"), "cache_ttl_s": 60.0}
    config = {"a": "{{ secrets.pin | int }}", "b": "{{ input.x }}"}
    seen = Seen()
    stage.handlers.register("see", seen)

    async with stage.working(secrets=SECRETS):
        for number, value in enumerate((1, 1, 2), start=1):
            await stage.issue(
                stage.task("see", config, node=f"n{number}", execution_input={"x": value}, **fields)
            )
            await stage.results(number)

    assert seen.configs == [{"a": 1234, "b": 1}, {"a": 1234, "b": 2}]


async def test_a_stored_line_does_not_end_with_half_a_secret(
    stage: WorkerHarness,
) -> None:
    """Redaction makes a line shorter, so text that was cut at first may become visible."""
    key = "0123456789abcdef" * 40

    def log(config: Json, ctx: Context) -> None:
        ctx.logger.info("%s", config["key"] * 20)

    stage.handlers.register("log", log)

    ended = await stage.run(
        stage.task("log", {"key": "{{ secrets.key }}"}), secrets=KnownSecrets({"key": key})
    )

    assert isinstance(ended, TaskCompleted)
    assert [line.text for line in ended.logs] == ["***" * 16 + "…"]
