"""The processes of a peer: its server, its workers and the measuring program."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.peers.commands import build_temporal_command
from bench.peers.environment import FOLDER
from bench.peers.peer import Command, Peer, PeerSettings
from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.app.private_servers.server import LOOPBACK, ServerProcess, find_free_port
from runnel.engine.clock import RandomIdGenerator

ORDER_FILE = "order.json"


class PeerDeployment:
    """The processes of a peer. They end with this process, even after `kill -9`.

    They run in `folder`, which is removed with them.
    """

    def __init__(self, stack: ExitStack, *, python: Path, folder: Path) -> None:
        self._stack = stack
        self._python = python
        self._running: dict[str, ServerProcess] = {}
        self.folder = folder

    def start(self, name: str, command: Command) -> ServerProcess:
        process = ServerProcess(
            build_command_line(self._python, command),
            folder=self.folder,
            log=self.folder / f"{name}.log",
            user=None,
        )
        self._stack.callback(process.kill)
        self._running[name] = process
        return process

    def find_ended(self) -> Command:
        return [name for name, process in self._running.items() if process.has_ended]

    def read_log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")


@contextmanager
def deploy_peer(
    peer: Peer, *, python: Path, settings: PeerSettings, workload: str, count: int
) -> Iterator[PeerDeployment]:
    with ExitStack() as stack:
        # Some processes of peers write to the folder while they are killed.
        folder = tempfile.TemporaryDirectory(prefix="runnel-peer-", ignore_cleanup_errors=True)
        deployment = PeerDeployment(stack, python=python, folder=Path(stack.enter_context(folder)))
        url = _start_server(peer, stack, deployment, settings)
        order = {"workload": workload, "count": count, "url": url, "settings": settings}
        (deployment.folder / ORDER_FILE).write_text(json.dumps(order), encoding="utf-8")
        for number, command in enumerate(peer.workers(settings)):
            deployment.start(f"worker-{number}", command)
        yield deployment


def build_command_line(python: Path, command: Command) -> Command:
    """Returns the command line with only the folder of `programs` on PYTHONPATH."""
    program, *arguments = command
    start = [str(python), program] if program.startswith("-") else [str(python.parent / program)]
    return ["/usr/bin/env", f"PYTHONPATH={FOLDER}", *start, *arguments]


def _start_server(
    peer: Peer, stack: ExitStack, deployment: PeerDeployment, settings: PeerSettings
) -> str:
    """Starts the server and returns its address. Settings equal those of Runnel's benchmarks."""
    match peer.server:
        case "redis":
            return stack.enter_context(RedisServer(storage="disk")).url
        case "postgres":
            return stack.enter_context(PostgresServer(storage="disk", fsync=True)).url
        case "sqlite":
            return f"sqlite:///{deployment.folder}/peer.sqlite"
        case "temporal":
            port = find_free_port(RandomIdGenerator())
            deployment.start("server", build_temporal_command(port, settings))
            return f"{LOOPBACK}:{port}"
