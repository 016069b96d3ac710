"""The commands of `runnel`: where each is, and in which part of the help; imported when called."""

import importlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup


class Entry(NamedTuple):
    """A function of a module of `runnel.cli`, or its `app` with commands of its own."""

    panel: str
    module: str
    function: str
    example: str = ""


_WRITE, _RUN, _ACT = "Write workflows", "Run them", "Look and act"
_SERVE = "Run them on servers"

COMMANDS = {
    "run": Entry(_RUN, "run", "run", "runnel run report.yaml --input year=2026"),
    "resume": Entry(_RUN, "resume", "resume", "runnel resume @last"),
    "rerun": Entry(_RUN, "rerun", "rerun", "runnel rerun @last --from parse --input year=2025"),
    "batch": Entry(
        _RUN,
        "batch",
        "batch",
        "runnel batch invoice.yaml --inputs invoices.jsonl --output results.jsonl",
    ),
    "init": Entry(_WRITE, "init", "init", "runnel init my-project"),
    "validate": Entry(_WRITE, "validate", "validate", "runnel validate report.yaml"),
    "graph": Entry(_WRITE, "graph", "graph", "runnel graph report.yaml --mermaid > report.mmd"),
    "export": Entry(_WRITE, "export", "export", "runnel export flow.py > flow.yaml"),
    "schema": Entry(_WRITE, "schema", "schema", "runnel schema > runnel.schema.json"),
    "orchestrator": Entry(
        _SERVE,
        "orchestrator",
        "orchestrator",
        "runnel orchestrator --redis-url redis://localhost:6379/0",
    ),
    "worker": Entry(_SERVE, "worker", "worker", "runnel worker --queues python --concurrency 16"),
    "api": Entry(_SERVE, "api", "api", "runnel api --port 8080 --workers 2"),
    "workers": Entry(_SERVE, "workers", "workers", "runnel workers"),
    "queues": Entry(_SERVE, "queues", "queues", "runnel queues --json"),
    "trim": Entry(_SERVE, "trim", "trim", "runnel trim"),
    "dev": Entry(_SERVE, "dev", "dev", "runnel dev --port 8080"),
    "doctor": Entry(_SERVE, "doctor", "doctor", "runnel doctor"),
    "bench": Entry(_SERVE, "bench", "bench", "runnel bench diamond --backend sqlite"),
    "config": Entry(_SERVE, "config", "config", "RUNNEL_ENV=prod runnel config"),
    "workflows": Entry(_ACT, "workflows", "workflows", "runnel workflows report --diff 1"),
    "list": Entry(_ACT, "listing", "list_executions", "runnel list --status failed --limit 5"),
    "top": Entry(_ACT, "top", "top", "runnel top"),
    "show": Entry(_ACT, "show", "show", "runnel show @last"),
    "watch": Entry(_ACT, "watch", "watch", "runnel watch @last"),
    "history": Entry(_ACT, "history", "history", "runnel history @last"),
    "signal": Entry(_ACT, "signal", "signal", "runnel signal @last approve --payload by=ada"),
    "cancel": Entry(_ACT, "cancel", "cancel", "runnel cancel 01m7gj --reason 'wrong file'"),
    "version": Entry(_ACT, "version", "version", "runnel version"),
    "schedule": Entry(_RUN, "schedule", "app"),
    "webhook": Entry(_RUN, "webhook", "app"),
    "dlq": Entry(_ACT, "dlq", "app"),
    "token": Entry(_SERVE, "token", "app"),
}


class Commands(TyperGroup):
    """Imports and builds a command when it is asked for: a call needs one of forty.

    Three calls each in turn, on busy cores: --version took 98 ms of processor time instead of 186,
    a run of three nodes 575 instead of 650.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = _Lazy()


class _Lazy(Mapping[str, Any]):
    """Every name is there from the beginning, a command from when it is first looked at."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            self._built[name] = _build(name, COMMANDS[name])
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _build(name: str, entry: Entry) -> Any:
    found = getattr(importlib.import_module(f"runnel.cli.{entry.module}"), entry.function)
    home = typer.Typer(rich_markup_mode="rich")
    if isinstance(found, typer.Typer):
        home.add_typer(found, name=name, rich_help_panel=entry.panel)
    else:
        epilog = f"Example:  [bold]{entry.example}[/bold]"
        home.command(name, epilog=epilog, rich_help_panel=entry.panel)(found)
    return typer.main.get_group(home).commands[name]
