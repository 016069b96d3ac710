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

from runnel.app.process_signals import SIGNAL_EXIT, SIGNALS, hearing
from runnel.cli.options import Place, ServerUrl
from runnel.cli.session.serving import MetricsPort
from runnel.engine.clock import RealClock
from runnel.ports.clock import Clock

if TYPE_CHECKING:
    from runnel.app.roles import Role
    from runnel.cli.session.serving import Site
    from runnel.settings.model import Settings


Host: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Where to listen. [dim]\\[default: $RUNNEL_API_HOST or 127.0.0.1][/dim]",
        show_default=False,
    ),
]
Port: TypeAlias = Annotated[
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
    host: Host = None,
    port: Port = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="How many processes answer.")] = 1,
    metrics_port: MetricsPort = None,
    redis_url: ServerUrl = None,
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
    from runnel.settings import adjusted

    settings = configure_server(Place(redis_url=redis_url))
    settings = adjusted(settings, api_host=host, api_port=port, metrics_port=metrics_port)
    listening = _adopted(inherited) or listen(settings.api_host, settings.api_port)
    if inherited is not None:
        end_with_parent()
    if workers > 1:
        from runnel.cli.session.serving import ports_for

        command = [*_command(redis_url), "--fd", str(listening.fileno())]
        ports = ports_for(settings.metrics_port, workers)
        first, *others = [[*command, *given] for given in ports]
        commands = [first, *([*each, "--quiet"] for each in others)]
        return asyncio.run(supervise(commands, listening))
    serving = serve(
        settings,
        "api",
        lambda site: answering(site, settings, listening, is_quiet=is_quiet),
        decides=True,
        answers=True,
    )
    return asyncio.run(serving)


async def answering(
    site: "Site", settings: "Settings", listening: "socket.socket", *, is_quiet: bool = False
) -> "Role":
    """The role that answers, for a process that has nothing else to do with the store.

    It says where, unless it `is_quiet`, as soon as it does.
    """
    from runnel.api.app import build_api
    from runnel.app.stores import look_at

    look = look_at(site.backend, site.world.clock, site.world.ids)
    if site.metrics is not None:
        look.hub.count_by(site.metrics)
    return await build_api(
        settings,
        look.client,
        site.backend,
        site.world,
        listening=listening,
        newsroom=look.newsroom,
        on_answering=partial(settle_in, listening, is_quiet=is_quiet),
        metrics=site.metrics,
    )


def settle_in(listening: "socket.socket", *, is_quiet: bool = False) -> None:
    """A process that answers has loaded all it needs, and says where it answers."""
    import gc
    import sys

    from runnel.api.server import url_of

    # What is loaded stays: to look through its 105,000 objects for garbage took 50 ms (2026-11),
    # every time that enough of others had come, and nobody was answered meanwhile.
    gc.freeze()
    if not is_quiet:
        print(f"Runnel answers on {url_of(listening)}", file=sys.stderr, flush=True)


def _command(redis_url: str | None) -> list[str]:
    """For a child process, which has the same environment."""
    import sys

    url = [] if redis_url is None else ["--redis-url", redis_url]
    return [sys.executable, "-m", "runnel", "api", *url]


def _adopted(number: int | None) -> "socket.socket | None":
    import socket

    return None if number is None else socket.socket(fileno=number)


# Several processes that answer on one socket: those that die are started again.

# One that dies at its start is not started again and again without a breath.
PAUSE_S = 1.0
PAUSE_S_MAX = 30.0
# Whoever has lived so long could be started: what ends it afterwards is something else.
STARTED_S = 10.0


async def supervise(commands: Sequence[Sequence[str]], listening: socket.socket) -> int:
    """Until a signal, which all of them are told; the exit code of the first that had a bad one.

    When the first ones can't be started, neither is anything else: it ends with their exit code.
    """
    several = _Several(listening.fileno(), RealClock())
    with hearing(several.tell, at_last=lambda: None):
        async with asyncio.TaskGroup() as group:
            keeping = [group.create_task(several.keep(command)) for command in commands]
    codes = [each.result() for each in keeping]
    bad = next((code for code in codes if not several.is_good(code)), 0)
    return bad if bad >= 0 else SIGNAL_EXIT - bad


def end_with_parent() -> None:
    """This process ends as by a signal when the one that has started it is gone, even by a kill -9.

    Standard input is a pipe whose other end only that one holds.
    """

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()


class _Several:
    def __init__(self, socket_number: int, clock: Clock) -> None:
        self._socket_number = socket_number
        self._clock = clock
        self._stopping = asyncio.Event()
        self._running: set[Process] = set()
        self._has_started = False
        self._told = 0

    def is_good(self, code: int) -> bool:
        """Who was told once to end, and before it could hear that, is ended by the signal."""
        ended_by = -code if code < 0 else code - SIGNAL_EXIT
        return code == 0 or (ended_by in SIGNALS and (code < 0 or self._told == 1))

    def tell(self, number: int) -> None:
        self._told += 1
        self._stopping.set()
        for each in self._running:
            if each.returncode is None:
                each.send_signal(number)

    async def keep(self, command: Sequence[str]) -> int:
        """One of them and its successors; the exit code of the last."""
        code, failed = 0, 0
        while not self._stopping.is_set():
            began = self._clock.monotonic()
            code = await self._one(command)
            if self._stopping.is_set():
                break
            lived_s = self._clock.monotonic() - began
            self._has_started = self._has_started or lived_s >= STARTED_S
            if code > 0 and not self._has_started:
                print("the processes can't be started; see the error above", file=sys.stderr)
                self.tell(signal.SIGTERM)
                break
            failed = 0 if lived_s >= STARTED_S else failed + 1
            print(f"a process ended with {code}; starting another", file=sys.stderr)
            pause_s = min(PAUSE_S_MAX, PAUSE_S * (1 << min(failed, 10)))
            await self._clock.wait(self._stopping, pause_s)
        return code

    async def _one(self, command: Sequence[str]) -> int:
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
