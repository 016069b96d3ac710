"""The screen of `runnel top` fits the terminal."""

import pytest

from runnel.cli.render.overview import Overview, build_worker_row
from runnel.cli.render.text import STATE_STYLES
from runnel.cli.render.top_screen import allocate_rows, build_screen
from runnel.client.execution_views import build_execution_summary
from runnel.client.operations import build_worker_view
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.ports.store import ExecutionHeader
from runnel.ports.workers import WorkerInfo, WorkerRecord
from runnel.settings.model import Settings
from runnel.views.operations import QueueView


@pytest.mark.parametrize(
    ("needed", "lines", "shares"),
    [
        ([0, 0], 40, [0, 0]),
        ([100, 2], 20, [12, 2]),
        ([100, 100], 20, [7, 7]),
        ([100, 5, 100], 30, [8, 5, 8]),
        ([100, 100], 4, [3, 3]),
    ],
)
def test_the_rows_of_the_terminal_are_shared_among_the_sections(
    needed: list[int], lines: int, shares: list[int]
) -> None:
    assert allocate_rows(needed, lines) == shares


def test_a_screen_shows_the_rows_that_fit_and_counts_the_hidden_ones() -> None:
    summaries = [
        build_execution_summary(
            ExecutionHeader(
                execution_id=ExecutionId(f"x{number}"),
                workflow="w",
                version=1,
                definition="d",
                state=ExecutionState.RUNNING,
                created_at=1.0,
                started_at=90.0,
            )
        )
        for number in range(40)
    ]
    seen = Overview(
        at=100.0,
        unfinished=summaries,
        ended=(),
        dead_letters=3,
        owners=["engine-1"],
        queues=[
            QueueView(
                queue="python",
                waiting=7,
                oldest_s=1.0,
                workers=0,
                problem="no worker is alive",
            )
        ],
        workers=[],
    )

    lines = build_screen(seen, height=24, problem="Redis is away").plain.split("\n")

    assert len(lines) <= 24
    assert "40 running" in lines[0]
    assert "3 dead letters (runnel dlq list)" in lines[0]
    assert lines[1] == "Redis is away"
    shown = [line for line in lines if line.startswith("x")]
    assert shown[0].split() == ["x0", "w", STATE_STYLES["RUNNING"].glyph, "RUNNING", "10", "s"]
    assert f"under way  ({40 - len(shown)} more)" in lines
    assert "  none; start one with: runnel worker" in lines
    assert any(line.startswith("python") and "no worker is alive" in line for line in lines)


@pytest.mark.parametrize(("holds", "shown"), [(0, "0/8"), (8, "8/8"), (28, "8/8 +20")])
def test_a_worker_is_never_busier_than_its_slots(holds: int, shown: str) -> None:
    about = WorkerInfo(host="h", concurrency=8)
    record = WorkerRecord(worker="w", counter=1, holds=holds, about=about, silent_s=0.0)

    row = build_worker_row(build_worker_view(record, Settings()), 0.0)

    assert row[2].text == shown


def test_a_worker_shows_its_abandoned_threads() -> None:
    about = WorkerInfo(host="h", concurrency=8, abandoned_threads=2)
    record = WorkerRecord(worker="w", counter=1, holds=3, about=about, silent_s=0.0)

    row = build_worker_row(build_worker_view(record, Settings()), 0.0)

    assert row[2].text == "3/8, 2 abandoned"
