"""A peer at work: its server, its workers and the program that measures, all gone at the end."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.peers.commands import temporal_server
from bench.peers.environment import FOLDER
from bench.peers.peer import Command, Peer, Settings
from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.app.private_servers.server import LOOPBACK, ServerProcess, free_port
from runnel.engine.clock import RealIds

ORDER = "order.json"


class Deployment:
    """Processes that end with this one at the latest, even when it is killed with -9.

    They run in `folder`, which is removed with them.
    """

    def __init__(self, stack: ExitStack, *, python: Path, folder: Path) -> None:
        self._stack = stack
        self._python = python
        self._running: dict[str, ServerProcess] = {}
        self.folder = folder

    def start(self, name: str, command: Command) -> ServerProcess:
        process = ServerProcess(
            command_line(self._python, command),
            folder=self.folder,
            log=self.folder / f"{name}.log",
            user=None,
        )
        self._stack.callback(process.kill)
        self._running[name] = process
        return process

    def ended(self) -> Command:
        return [name for name, process in self._running.items() if process.has_ended]

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")


@contextmanager
def deployed(
    peer: Peer, *, python: Path, settings: Settings, workload: str, count: int
) -> Iterator[Deployment]:
    with ExitStack() as stack:
        # Some of the peers' processes write a last line while they are killed.
        folder = tempfile.TemporaryDirectory(prefix="runnel-peer-", ignore_cleanup_errors=True)
        deployment = Deployment(stack, python=python, folder=Path(stack.enter_context(folder)))
        url = _server(peer, stack, deployment, settings)
        order = {"workload": workload, "count": count, "url": url, "settings": settings}
        (deployment.folder / ORDER).write_text(json.dumps(order), encoding="utf-8")
        for number, command in enumerate(peer.workers(settings)):
            deployment.start(f"worker-{number}", command)
        yield deployment


def command_line(python: Path, command: Command) -> Command:
    """With the programs, and nothing of this project, on the path."""
    program, *arguments = command
    found = [str(python), program] if program.startswith("-") else [str(python.parent / program)]
    return ["/usr/bin/env", f"PYTHONPATH={FOLDER}", *found, *arguments]


def _server(peer: Peer, stack: ExitStack, deployment: Deployment, settings: Settings) -> str:
    """Its address. Private servers are those of Runnel's own measurements, in the same settings."""
    match peer.server:
        case "redis":
            return stack.enter_context(RedisServer(storage="disk")).url
        case "postgres":
            return stack.enter_context(PostgresServer(storage="disk", fsync=True)).url
        case "sqlite":
            return f"sqlite:///{deployment.folder}/peer.sqlite"
        case "temporal":
            port = free_port(RealIds())
            deployment.start("server", temporal_server(port, settings))
            return f"{LOOPBACK}:{port}"
