"""Answers HTTP requests until the process ends: those that are under way are answered first."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from runnel.api.connections import TimelyProtocol
from runnel.api.site import Site
from runnel.errors import InputError
from runnel.runtime.engine import Stops

BACKLOG = 2_048
# Clients give up a connection that is idle for 5 to 60 s. Were it closed here at the same moment,
# a request that is just on its way would be lost: httpx and uvicorn both have 5 s by default.
KEEP_ALIVE_S = 75


def listen(host: str, port: int, *, option: str = "--port") -> socket.socket:
    """Raises InputError when the address can't be had; port 0 is one that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named, because asyncio sends without delay only on sockets that say they are of TCP: without
    # it, an answer waited 40 ms for the client's acknowledgement of its head.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(
            f"can't listen on {host}:{port}: {why}; give another {option}, or end what has it"
        ) from error
    listening.listen(BACKLOG)
    listening.set_inheritable(True)
    return listening


def url_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class ApiRole:
    """A role of a process, as an orchestrator or a worker is one.

    `on_answering` is called when it has begun to answer: nothing can keep it from that any more.
    """

    def __init__(
        self,
        name: str,
        app: FastAPI,
        site: Site,
        listening: socket.socket,
        *,
        on_answering: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self._site = site
        self._listening = listening
        settings = site.settings
        config = uvicorn.Config(
            app,
            http=TimelyProtocol,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            proxy_headers=bool(settings.api_proxies),
            forwarded_allow_ips=list(settings.api_proxies),
            timeout_graceful_shutdown=max(1, round(settings.shutdown_timeout_s)),
        )
        self._server = QuietServer(config, on_answering)

    async def run(self, stops: Stops) -> None:
        async with asyncio.TaskGroup() as group:
            ending = [group.create_task(self._end(stops)), group.create_task(self._hurry(stops))]
            await self._server.serve(sockets=[self._listening])
            for each in ending:
                each.cancel()

    async def _end(self, stops: Stops) -> None:
        await stops.gently.wait()
        self._site.stopping.set()
        self._server.should_exit = True

    async def _hurry(self, stops: Stops) -> None:
        await stops.now.wait()
        self._server.force_exit = True


class QuietServer(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, on_answering: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(config)
        self._on_answering = on_answering

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._on_answering()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The process hears them, and tells all its roles."""
        yield
