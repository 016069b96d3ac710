"""`runnel api`"""

import asyncio
import gc
import os
import signal
import socket
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from functools import partial
from typing import Annotated, TypeAlias

import typer

from runnel.api.app import build_api
from runnel.api.server import format_url, listen
from runnel.app.process_signals import SIGNAL_EXIT_BASE, SIGNALS, handle_signals
from runnel.app.roles import Role
from runnel.app.stores import build_store_session
from runnel.cli.options import RedisLocation, configure_server
from runnel.cli.session.server_roles import (
    MetricsPortOption,
    RoleDependencies,
    assign_metrics_ports,
    serve,
)
from runnel.engine.clock import RealClock
from runnel.ports.clock import Clock
from runnel.settings import override_settings
from runnel.settings.model import Settings

HostOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="The address to listen on. [dim]\\[default: $RUNNEL_API_HOST or 127.0.0.1][/dim]",
    ),
]
PortOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65_535,
        help="The port to listen on; 0 picks a free port. "
        "[dim]\\[default: $RUNNEL_API_PORT or 8080][/dim]",
    ),
]


def api(
    *,
    host: HostOption = None,
    port: PortOption = None,
    workers: Annotated[
        int, typer.Option(min=1, max=64, help="The number of API processes to start.")
    ] = 1,
    metrics_port: MetricsPortOption = None,
    location: RedisLocation,
    inherited: Annotated[
        int | None,
        typer.Option(
            "--fd", hidden=True, help="The file descriptor of a socket that listens already."
        ),
    ] = None,
    is_quiet: Annotated[
        bool, typer.Option("--quiet", hidden=True, help="Do not print the address of the API.")
    ] = False,
) -> int:
    """Serve the HTTP API for executions on a Redis server.

    Orchestrators and workers are separate processes. Without tokens, the API listens on this
    machine only: [bold]runnel token create[/bold] creates a token.

    Each process serves its own metrics: the first on --metrics-port, the second on the next port,
    and so on.

    After SIGTERM or Ctrl-C the API finishes open requests; a second signal ends it at once. Log
    lines go to stderr.
    """
    settings = configure_server(location)
    settings = override_settings(settings, api_host=host, api_port=port, metrics_port=metrics_port)
    listening = _adopt_socket(inherited) or listen(settings.api_host, settings.api_port)
    if inherited is not None:
        exit_with_parent()
    if workers > 1:
        command = [*_build_child_command(location), "--fd", str(listening.fileno())]
        ports = assign_metrics_ports(settings.metrics_port, workers)
        first, *later = [[*command, *options] for options in ports]
        commands = [first, *([*arguments, "--quiet"] for arguments in later)]
        return asyncio.run(supervise(commands, listening))
    serving = serve(
        settings,
        "api",
        lambda dependencies: build_api_role(dependencies, settings, listening, is_quiet=is_quiet),
        uses_archive=True,
        serves_http=True,
    )
    return asyncio.run(serving)


async def build_api_role(
    dependencies: RoleDependencies,
    settings: Settings,
    server_socket: socket.socket,
    *,
    is_quiet: bool = False,
) -> Role:
    """Builds the role that serves HTTP requests.

    The role prints its address when it is ready, unless `is_quiet`.
    """
    session = build_store_session(
        dependencies.backend,
        dependencies.clock_and_ids.clock,
        dependencies.clock_and_ids.ids,
        mocks_services=settings.mocks_services,
    )
    if dependencies.metrics is not None:
        session.event_bus.add_sink(dependencies.metrics)
    return await build_api(
        settings,
        session.client,
        dependencies.backend,
        dependencies.clock_and_ids,
        server_socket=server_socket,
        feed_reader=session.feed_reader,
        on_ready=partial(finish_startup, server_socket, is_quiet=is_quiet),
        metrics=dependencies.metrics,
    )


def finish_startup(server_socket: socket.socket, *, is_quiet: bool = False) -> None:
    """Excludes loaded objects from garbage collection; prints the address unless `is_quiet`."""
    # The 105,000 objects of the modules are never freed. A garbage collection that walked them
    # took 50 ms (2026-11), and no request was served meanwhile.
    gc.freeze()
    if not is_quiet:
        print(f"Runnel answers on {format_url(server_socket)}", file=sys.stderr, flush=True)


def _build_child_command(location: RedisLocation) -> list[str]:
    """Returns the command of a child process, which inherits the environment."""
    url = [] if location.redis_url is None else ["--redis-url", location.redis_url]
    return [sys.executable, "-m", "runnel", "api", *url]


def _adopt_socket(number: int | None) -> socket.socket | None:
    return None if number is None else socket.socket(fileno=number)


# Several processes that serve one socket: a process that dies is restarted.

# The delay before a restart doubles with each failed start.
RESTART_DELAY_S = 1.0
RESTART_DELAY_S_MAX = 30.0
# A process that lived this long has started: its end is not a failed start.
STARTUP_S_MAX = 10.0


async def supervise(commands: Sequence[Sequence[str]], server_socket: socket.socket) -> int:
    """Keeps the processes running until a signal, and forwards the signal to all of them.

    Returns the exit code of the first process that failed. If a process fails before any process
    has started, all processes are stopped.
    """
    supervisor = _ProcessSupervisor(server_socket.fileno(), RealClock())
    with handle_signals(supervisor.forward_signal, before_exit=lambda: None):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(supervisor.keep_running(command)) for command in commands]
    codes = [task.result() for task in tasks]
    bad = next((code for code in codes if not supervisor.is_clean_exit(code)), 0)
    return bad if bad >= 0 else SIGNAL_EXIT_BASE - bad


def exit_with_parent() -> None:
    """Sends SIGTERM to this process as soon as its parent has ended, even by a kill -9.

    Standard input is a pipe, and only the parent holds the pipe's other end.
    """

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()


class _ProcessSupervisor:
    def __init__(self, socket_number: int, clock: Clock) -> None:
        self._socket_number = socket_number
        self._clock = clock
        self._stopping = asyncio.Event()
        self._running: set[Process] = set()
        self._has_started = False
        self._signal_count = 0

    def is_clean_exit(self, code: int) -> bool:
        """Returns True if the exit code means a shutdown on request.

        A process that gets a signal before it can handle signals is killed by that signal.
        """
        ended_by = -code if code < 0 else code - SIGNAL_EXIT_BASE
        return code == 0 or (ended_by in SIGNALS and (code < 0 or self._signal_count == 1))

    def forward_signal(self, number: int) -> None:
        self._signal_count += 1
        self._stopping.set()
        for process in self._running:
            if process.returncode is None:
                process.send_signal(number)

    async def keep_running(self, command: Sequence[str]) -> int:
        """Restarts the process whenever it ends; returns the exit code of the last process."""
        code, failed = 0, 0
        while not self._stopping.is_set():
            began = self._clock.monotonic()
            code = await self._run_process(command)
            if self._stopping.is_set():
                break
            lived_s = self._clock.monotonic() - began
            self._has_started = self._has_started or lived_s >= STARTUP_S_MAX
            if code > 0 and not self._has_started:
                print("the API processes can't be started; see the error above", file=sys.stderr)
                self.forward_signal(signal.SIGTERM)
                break
            failed = 0 if lived_s >= STARTUP_S_MAX else failed + 1
            print(f"an API process ended with exit code {code}; starting another", file=sys.stderr)
            pause_s = min(RESTART_DELAY_S_MAX, RESTART_DELAY_S * (1 << min(failed, 10)))
            await self._clock.wait(self._stopping, pause_s)
        return code

    async def _run_process(self, command: Sequence[str]) -> int:
        """Runs a child process until it ends; returns its exit code.

        The child has its own session, so that a Ctrl-C reaches it only through this process.
        """
        process = await asyncio.create_subprocess_exec(
            *command,
            pass_fds=[self._socket_number],
            stdin=PIPE,
            start_new_session=True,
        )
        self._running.add(process)
        if self._stopping.is_set():  # the signal came while the process was being started
            process.terminate()
        try:
            return await process.wait()
        finally:
            self._running.discard(process)
