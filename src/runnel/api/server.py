"""Answers HTTP requests until the process ends: those that are under way are answered first."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus

import h11
import uvicorn
from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from runnel.api.problems import malformed_request
from runnel.api.security.guard import LOOPBACK, check_host
from runnel.api.state import Site
from runnel.app.engine import Stops
from runnel.app.roles import Role
from runnel.errors import ForeignRequestError, InputError
from runnel.telemetry.prometheus import MEDIA_TYPE, Exposition

# Connections on which a request has to arrive in time: an open one costs the server something.

# From the first byte of a request, or from the beginning of the connection, to the last byte of
# its body. 10 MB take that long at 1.3 Mbit/s.
REQUEST_S = 60.0
_ARRIVING = frozenset({h11.IDLE, h11.SEND_BODY})
_UNANSWERED = frozenset({h11.IDLE, h11.SEND_RESPONSE})


class TimelyProtocol(H11Protocol):
    """uvicorn itself waits for ever for the rest of a request that has begun."""

    request_s = REQUEST_S
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """What came together with the request before may be the beginning of the next one."""
        super().on_response_complete()
        if self.conn.trailing_data[0]:
            self._look()

    def send_400_response(self, msg: str) -> None:
        """What is no request of HTTP is refused in the same form as one that asks for too much.

        Whatever the application would still say is dropped, and after the beginning of an answer
        there is no place for another one.
        """
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in _UNANSWERED:
            self._refuse()
        self.transport.close()

    def _refuse(self) -> None:
        answer = malformed_request("what came is no request of HTTP/1.1")
        head = h11.Response(
            status_code=answer.status_code,
            headers=answer.raw_headers,
            reason=HTTPStatus(answer.status_code).phrase,
        )
        for event in (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _look(self) -> None:
        if self.conn.their_state not in _ARRIVING or self.transport.is_closing():
            self._forget()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.request_s, self._hang_up)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _hang_up(self) -> None:
        self._deadline = None
        if self.conn.their_state in _ARRIVING:
            self.transport.close()


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


# Numbers for Prometheus on a port of their own, of a process that answers nothing else.

PATH = "/metrics"


class MeteredRole:
    """`role`, and its numbers as long as it runs; `refresh` is called before they are read."""

    def __init__(
        self,
        role: Role,
        exposition: Exposition,
        listening: socket.socket,
        *,
        refresh: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.name = role.name
        self._role = role
        self._exposition = exposition
        self._listening = listening
        self._refresh = refresh
        self._is_local = listening.getsockname()[0] in LOOPBACK

    async def run(self, stops: Stops) -> None:
        config = uvicorn.Config(
            self._answer,
            interface="asgi3",
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        server = QuietServer(config)
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=[self._listening]))
            try:
                await self._role.run(stops)
            finally:
                server.should_exit = True

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await (await self._response(scope))(scope, receive, send)

    async def _response(self, scope: Scope) -> Response:
        try:
            if self._is_local:
                check_host(Headers(scope=scope), LOOPBACK)
        except ForeignRequestError as error:
            return PlainTextResponse(f"{error}\n", 403)
        if scope["path"] != PATH:
            return PlainTextResponse(f"there is only {PATH}\n", 404)
        if scope["method"] not in {"GET", "HEAD"}:
            return PlainTextResponse("only GET\n", 405, {"Allow": "GET"})
        if self._refresh is not None:
            await self._refresh()
        return Response(self._exposition.text(), media_type=MEDIA_TYPE)
