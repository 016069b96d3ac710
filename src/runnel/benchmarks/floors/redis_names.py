"""The keys of the floor on Redis, and what its processes are told: as little as they need."""

import os
from collections.abc import Callable, Mapping

import msgspec

from runnel.benchmarks.workflows import chain, diamond, fan, graph
from runnel.core.workflow import Workflow

VARIABLE = "RUNNEL_BENCH_FLOOR"
WORKFLOWS: Mapping[str, Callable[[], Workflow]] = {
    "diamond": diamond,
    "chain": chain,
    "fan": fan,
    "graph": graph,
}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """In the environment of the processes, because anybody may read their arguments."""

    redis_url: str
    postgres_url: str | None
    name: str
    workflow: str
    slots: int

    def environ(self) -> dict[str, str]:
        return {VARIABLE: msgspec.json.encode(self).decode()}

    @property
    def names(self) -> "Names":
        return Names(self.name)


def read_plan() -> Plan:
    return msgspec.json.decode(os.environ[VARIABLE], type=Plan)


class Names:
    """Of one partition, as the engine has for each; `held`, `hand` and `history` are prefixes."""

    def __init__(self, prefix: str) -> None:
        tag = prefix + ":{f}:"
        self.partition = tag + "partition"
        self.inbox = tag + "inbox"
        self.running = tag + "running"
        self.ended = tag + "ended"
        self.headers = tag + "headers"
        self.listed = tag + "listed"
        self.ids = tag + "ids"
        self.journal = tag + "journal"
        self.history = tag + "history:"
        self.tasks = tag + "tasks"
        self.out = tag + "out"
        self.held = tag + "held:"
        self.waiting = tag + "waiting"
        self.hand = tag + "hand:"
        self.ends = tag + "ends"
