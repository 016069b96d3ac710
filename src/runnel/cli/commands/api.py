"""`runnel api`"""

import asyncio
import os
import signal
import socket
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from runnel.app.process_signals import SIGNAL_EXIT_BASE, SIGNALS, handle_signals
from runnel.cli.options import DefaultedRedisUrl, StoreLocation
from runnel.cli.session.serving import MetricsPortOption
from runnel.engine.clock import RealClock
from runnel.ports.clock import Clock

if TYPE_CHECKING:
    from runnel.app.roles import Role
    from runnel.cli.session.serving import RoleDependencies
    from runnel.settings.model import Settings


HostOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Where to listen. [dim]\\[default: $RUNNEL_API_HOST or 127.0.0.1][/dim]",
        show_default=False,
    ),
]
PortOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65_535,
        help="0 is one that is free. [dim]\\[default: $RUNNEL_API_PORT or 8080][/dim]",
        show_default=False,
    ),
]


def api(
    *,
    host: HostOption = None,
    port: PortOption = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="How many processes answer.")] = 1,
    metrics_port: MetricsPortOption = None,
    redis_url: DefaultedRedisUrl = None,
    inherited: Annotated[
        int | None, typer.Option("--fd", hidden=True, help="A socket that is listening already.")
    ] = None,
    is_quiet: Annotated[
        bool, typer.Option("--quiet", hidden=True, help="Another one says where they answer.")
    ] = False,
) -> int:
    """Serve the HTTP API of a Redis server, for orchestrators and workers that run elsewhere.

    Without tokens it listens on this machine only: [bold]runnel token create[/bold] makes one.

    Each process shows its own metrics: the second one on the port behind that of --metrics-port,
    and so on.

    SIGTERM or Ctrl-C answers what is under way, a second one ends it at once. It logs to stderr.
    """
    import asyncio

    from runnel.api.server import listen
    from runnel.cli.options import configure_server
    from runnel.cli.session.serving import serve
    from runnel.settings import override_settings

    settings = configure_server(StoreLocation(redis_url=redis_url))
    settings = override_settings(settings, api_host=host, api_port=port, metrics_port=metrics_port)
    listening = _adopt_socket(inherited) or listen(settings.api_host, settings.api_port)
    if inherited is not None:
        exit_with_parent()
    if workers > 1:
        from runnel.cli.session.serving import assign_metrics_ports

        command = [*_build_child_command(redis_url), "--fd", str(listening.fileno())]
        ports = assign_metrics_ports(settings.metrics_port, workers)
        first, *others = [[*command, *given] for given in ports]
        commands = [first, *([*each, "--quiet"] for each in others)]
        return asyncio.run(supervise(commands, listening))
    serving = serve(
        settings,
        "api",
        lambda site: build_api_role(site, settings, listening, is_quiet=is_quiet),
        uses_archive=True,
        serves_http=True,
    )
    return asyncio.run(serving)


async def build_api_role(
    dependencies: "RoleDependencies",
    settings: "Settings",
    server_socket: "socket.socket",
    *,
    is_quiet: bool = False,
) -> "Role":
    """The role that answers, for a process that has nothing else to do with the store.

    It says where, unless it `is_quiet`, as soon as it does.
    """
    from runnel.api.app import build_api
    from runnel.app.stores import build_store_session

    look = build_store_session(
        dependencies.backend, dependencies.clock_and_ids.clock, dependencies.clock_and_ids.ids
    )
    if dependencies.metrics is not None:
        look.event_bus.add_sink(dependencies.metrics)
    return await build_api(
        settings,
        look.client,
        dependencies.backend,
        dependencies.clock_and_ids,
        server_socket=server_socket,
        feed_broadcaster=look.feed_broadcaster,
        on_ready=partial(finish_startup, server_socket, is_quiet=is_quiet),
        metrics=dependencies.metrics,
    )


def finish_startup(server_socket: "socket.socket", *, is_quiet: bool = False) -> None:
    """A process that answers has loaded all it needs, and says where it answers."""
    import gc
    import sys

    from runnel.api.server import format_url

    # What is loaded stays: to look through its 105,000 objects for garbage took 50 ms (2026-11),
    # every time that enough of others had come, and nobody was answered meanwhile.
    gc.freeze()
    if not is_quiet:
        print(f"Runnel answers on {format_url(server_socket)}", file=sys.stderr, flush=True)


def _build_child_command(redis_url: str | None) -> list[str]:
    """For a child process, which has the same environment."""
    import sys

    url = [] if redis_url is None else ["--redis-url", redis_url]
    return [sys.executable, "-m", "runnel", "api", *url]


def _adopt_socket(number: int | None) -> "socket.socket | None":
    import socket

    return None if number is None else socket.socket(fileno=number)


# Several processes that answer on one socket: those that die are started again.

# One that dies at its start is not started again and again without a breath.
RESTART_DELAY_S = 1.0
RESTART_DELAY_S_MAX = 30.0
# Whoever has lived so long could be started: what ends it afterwards is something else.
STARTUP_S_MAX = 10.0


async def supervise(commands: Sequence[Sequence[str]], server_socket: socket.socket) -> int:
    """Until a signal, which all of them are told; the exit code of the first that had a bad one.

    When the first ones can't be started, neither is anything else: it ends with their exit code.
    """
    several = _ProcessSupervisor(server_socket.fileno(), RealClock())
    with handle_signals(several.forward_signal, before_exit=lambda: None):
        async with asyncio.TaskGroup() as group:
            keeping = [group.create_task(several.keep_running(command)) for command in commands]
    codes = [each.result() for each in keeping]
    bad = next((code for code in codes if not several.is_clean_exit(code)), 0)
    return bad if bad >= 0 else SIGNAL_EXIT_BASE - bad


def exit_with_parent() -> None:
    """This process ends as by a signal when the one that has started it is gone, even by a kill -9.

    Standard input is a pipe whose other end only that one holds.
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
        """Who was told once to end, and before it could hear that, is ended by the signal."""
        ended_by = -code if code < 0 else code - SIGNAL_EXIT_BASE
        return code == 0 or (ended_by in SIGNALS and (code < 0 or self._signal_count == 1))

    def forward_signal(self, number: int) -> None:
        self._signal_count += 1
        self._stopping.set()
        for each in self._running:
            if each.returncode is None:
                each.send_signal(number)

    async def keep_running(self, command: Sequence[str]) -> int:
        """One of them and its successors; the exit code of the last."""
        code, failed = 0, 0
        while not self._stopping.is_set():
            began = self._clock.monotonic()
            code = await self._run_process(command)
            if self._stopping.is_set():
                break
            lived_s = self._clock.monotonic() - began
            self._has_started = self._has_started or lived_s >= STARTUP_S_MAX
            if code > 0 and not self._has_started:
                print("the processes can't be started; see the error above", file=sys.stderr)
                self.forward_signal(signal.SIGTERM)
                break
            failed = 0 if lived_s >= STARTUP_S_MAX else failed + 1
            print(f"a process ended with {code}; starting another", file=sys.stderr)
            pause_s = min(RESTART_DELAY_S_MAX, RESTART_DELAY_S * (1 << min(failed, 10)))
            await self._clock.wait(self._stopping, pause_s)
        return code

    async def _run_process(self, command: Sequence[str]) -> int:
        """In a session of its own: Ctrl-C in a terminal is told by this process, and once."""
        process = await asyncio.create_subprocess_exec(
            *command,
            pass_fds=[self._socket_number],
            stdin=PIPE,
            start_new_session=True,
        )
        self._running.add(process)
        if self._stopping.is_set():  # told while it was being started
            process.terminate()
        try:
            return await process.wait()
        finally:
            self._running.discard(process)
