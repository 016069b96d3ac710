"""The states of workers and the problems of queues, as commands show them."""

import pytest

from runnel.client.operations import build_queue_views, get_worker_state
from runnel.ports.workers import QueueRecord, WorkerInfo, WorkerRecord
from runnel.settings.model import Settings

SETTINGS = Settings(heartbeat_timeout_s=9.0, unserved_s=60.0)


def worker(
    *queues: str, silent_s: float = 0.0, beat_s: float = 0.0, **fields: bool
) -> WorkerRecord:
    is_dead = fields.pop("is_dead", False)
    about = WorkerInfo(
        queues=queues or None,
        beat_s=beat_s,
        **fields,  # type: ignore[arg-type]  # is_draining
    )
    return WorkerRecord(
        worker="w", counter=1, holds=0, about=about, silent_s=silent_s, is_dead=is_dead
    )


@pytest.mark.parametrize(
    ("record", "state"),
    [
        (worker(), "alive"),
        (worker(is_draining=True), "draining"),
        (worker(silent_s=10.0), "silent"),
        (worker(silent_s=11.0, beat_s=4.0), "alive"),
        (worker(silent_s=13.0, beat_s=4.0), "silent"),
        (worker(silent_s=10.0, is_dead=True), "dead"),
    ],
)
def test_a_worker_is_alive_draining_silent_or_dead(record: WorkerRecord, state: str) -> None:
    assert get_worker_state(record, SETTINGS) == state


@pytest.mark.parametrize(
    ("name", "waiting", "workers", "serving", "problem"),
    [
        ("output", (3, 1.0), [worker()], 1, ""),
        ("output", (3, 31.0), [worker()], 1, "the oldest task has waited for more than 30 s"),
        ("mine", (3, 1e6), [worker()], 1, ""),
        (
            "output",
            (3, 1.0),
            [worker("tasks:python")],
            0,
            "no living worker takes tasks of the queue: they fail after 60",
        ),
        (
            "output",
            (3, 1.0),
            [worker(is_draining=True)],
            0,
            "the tasks of the queue wait: no worker is alive",
        ),
        ("output", (3, 99.0), [], 0, "the tasks of the queue wait: no worker is alive"),
        ("output", (3, 1.0), [worker(silent_s=99.0), worker()], 1, ""),
        ("output", (0, 0.0), [], 0, ""),
    ],
)
def test_a_queue_has_a_problem_if_no_worker_takes_its_tasks_or_they_wait_too_long(
    name: str,
    waiting: tuple[int, float],
    workers: list[WorkerRecord],
    serving: int,
    problem: str,
) -> None:
    record = QueueRecord(queue=f"tasks:{name}", depth=waiting[0], waits_s=waiting[1])

    (line,) = build_queue_views([record], workers, SETTINGS)

    assert (line.queue, line.waiting, line.workers) == (name, waiting[0], serving)
    assert line.problem.startswith(problem)
    assert bool(line.problem) is bool(problem)
