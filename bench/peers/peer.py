"""The description of a peer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

WORKLOADS = ("diamonds", "chain", "fan")

PeerSettings = Mapping[str, Any]
Command = list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One peer. A command is a program of its environment, or Python arguments if it starts with
    a dash.
    """

    name: str
    environment: str
    program: Command
    server: Literal["redis", "postgres", "sqlite", "temporal"]
    shown: tuple[str, ...]
    durability: str
    joins: str
    layout: str
    counts: Mapping[str, int]
    settings: PeerSettings
    best_for: Mapping[str, PeerSettings]
    workers: Callable[[PeerSettings], list[Command]]

    def settings_for(self, workload: str) -> PeerSettings:
        return {**self.settings, **self.best_for.get(workload, {})}
