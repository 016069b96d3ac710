"""Queues as people see them: what waits, since when, who takes it, and what is wrong with that."""

from collections.abc import Sequence

import msgspec

from runnel.operations.workers import state_of
from runnel.ports.registry import QueueRecord, WorkerRecord
from runnel.settings import Settings

INBOX = "inbox"
_KEY = "tasks:"


class QueueLine(msgspec.Struct, frozen=True, kw_only=True):
    """`problem` is what a person should look at; empty when there is nothing."""

    queue: str
    waiting: int
    oldest_s: float
    workers: int
    problem: str


def queue_name(key: str) -> str:
    """As people name it, in workflows and with --queues."""
    return key.removeprefix(_KEY)


def queue_key(name: str | None) -> str | None:
    """As stores have it: commands that could not be decided are in the queue `inbox`."""
    if name is None or name == INBOX:
        return name
    return f"{_KEY}{queue_name(name)}"


def lines_of(
    records: Sequence[QueueRecord], workers: Sequence[WorkerRecord], settings: Settings
) -> list[QueueLine]:
    alive = [each.about for each in workers if state_of(each, settings) == "alive" and each.about]
    lines = []
    for record in records:
        name = queue_name(record.queue)
        serving = sum(about.serves(record.queue) for about in alive)
        problem = _problem(record, name, settings, serving=serving, alive=len(alive))
        lines.append(
            QueueLine(
                queue=name,
                waiting=record.depth,
                oldest_s=record.waits_s,
                workers=serving,
                problem=problem,
            )
        )
    return lines


def _problem(
    record: QueueRecord, name: str, settings: Settings, *, serving: int, alive: int
) -> str:
    if record.depth and not alive:
        return "they wait until a worker is there"
    if record.depth and not serving:
        return f"no worker takes them: they fail after {settings.unserved_s:g} s"
    stale_s = settings.stale_s.get(name)
    if record.depth and stale_s is not None and record.waits_s > stale_s:
        return f"the oldest waits for more than {stale_s:g} s: more workers, or a larger timeout"
    return ""
