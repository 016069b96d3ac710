"""The last log lines of a task are part of its report."""

import logging
import os
from typing import Any

import pytest

from runnel.app.secrets import KnownSecrets
from runnel.authoring.context import Context
from runnel.core.commands import TaskCompleted, TaskFailed, TaskSkipped
from runnel.core.values import LOG_LINE_CHARS_MAX, LOG_LINES_MAX
from runnel.errors import Skip
from tests.unit.engine.worker.worker_harness import Ending, WorkerHarness


def texts(report: Ending) -> list[tuple[str, str]]:
    return [(line.level, line.text) for line in report.logs]


async def test_lines_from_info_on_are_kept_at_any_log_level_of_the_process(
    stage: WorkerHarness,
) -> None:
    @stage.handlers.handler("loud")
    async def loud(config: Any, ctx: Context) -> None:
        ctx.logger.debug("too small")
        ctx.logger.info("read %d of %s", 3, "pages")
        ctx.logger.error("odd", extra={"page": 2})

    report = await stage.run(stage.task("loud"))

    assert isinstance(report, TaskCompleted)
    assert texts(report) == [("info", "read 3 of pages"), ("error", "odd")]
    assert all(line.at > 0 for line in report.logs)


async def test_a_failed_and_a_skipped_task_report_their_lines_too(stage: WorkerHarness) -> None:
    @stage.handlers.handler("bad")
    def bad(config: Any, ctx: Context) -> None:
        ctx.logger.warning("before")
        raise Skip("none") if config else ValueError("no")

    failed = await stage.run(stage.task("bad"))
    stage.stop.clear()
    stage.reports.clear()
    skipped = await stage.run(stage.task("bad", {"skip": True}))

    assert isinstance(failed, TaskFailed)
    assert isinstance(skipped, TaskSkipped)
    assert texts(failed) == texts(skipped) == [("warning", "before")]


async def test_only_the_last_lines_are_kept_and_each_is_shortened(stage: WorkerHarness) -> None:
    @stage.handlers.handler("loud")
    def loud(config: Any, ctx: Context) -> None:
        for number in range(500):
            ctx.logger.info("%d %s", number, "x" * 20_000)

    report = await stage.run(stage.task("loud"))

    assert len(report.logs) == LOG_LINES_MAX
    assert {len(line.text) for line in report.logs} == {LOG_LINE_CHARS_MAX}
    assert report.logs[-1].text.startswith("499 ")


async def test_a_line_that_can_not_be_formatted_does_not_fail_the_task(
    stage: WorkerHarness,
) -> None:
    @stage.handlers.handler("odd")
    def odd(config: Any, ctx: Context) -> str:
        logging.raiseExceptions = False
        try:
            ctx.logger.info("%d pages", "no number")
        finally:
            logging.raiseExceptions = True
        ctx.logger.info(os.fsdecode(b"log \xff"))
        return "done"

    report = await stage.run(stage.task("odd"))

    assert isinstance(report, TaskCompleted)
    first, second = [line.text for line in report.logs]
    assert first.startswith("%d pages (TypeError: ")
    assert second.encode().startswith(b"log ")


async def test_secrets_are_redacted_before_a_line_is_shortened(stage: WorkerHarness) -> None:
    secret = "a-secret-of-some-length"

    @stage.handlers.handler("leaky")
    def leaky(config: Any, ctx: Context) -> None:
        ctx.logger.info("%s%s", "x" * (LOG_LINE_CHARS_MAX - 5), secret)

    report = await stage.run(stage.task("leaky"), secrets=KnownSecrets({"key": secret}))

    assert secret[:4] not in report.logs[0].text


async def test_a_record_names_the_line_that_logged_it(
    stage: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    @stage.handlers.handler("loud")
    def loud(config: Any, ctx: Context) -> None:
        ctx.logger.warning("here")

    with caplog.at_level(logging.INFO, "runnel.handler.loud"):
        await stage.run(stage.task("loud"))

    [record] = [
        candidate for candidate in caplog.records if candidate.name == "runnel.handler.loud"
    ]
    assert (record.pathname, record.funcName) == (__file__, "loud")


async def test_a_task_that_does_not_log_keeps_nothing(stage: WorkerHarness) -> None:
    seen: list[Context] = []

    @stage.handlers.handler("silent")
    def silent(config: Any, ctx: Context) -> None:
        seen.append(ctx)

    report = await stage.run(stage.task("silent"))

    assert report.logs == ()
    assert seen[0].log_lines == ()
