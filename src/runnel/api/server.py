"""The HTTP server of a process; a shutdown first completes the requests in flight."""

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

from runnel.api.problems import make_malformed_request_response
from runnel.api.security.access_control import LOOPBACK_HOSTS, check_host
from runnel.api.state import AppState
from runnel.app.embedded_engine import StopEvents
from runnel.app.roles import Role
from runnel.errors import ForeignRequestError, InputError
from runnel.telemetry.prometheus import MEDIA_TYPE, Exposition

# Measured from the first byte of a request, or from the start of the connection, to the last byte
# of the body. 10 MB take 60 s at 1.3 Mbit/s.
REQUEST_TIMEOUT_S = 60.0
_RECEIVING_STATES = frozenset({h11.IDLE, h11.SEND_BODY})
_UNANSWERED_STATES = frozenset({h11.IDLE, h11.SEND_RESPONSE})


class RequestTimeoutProtocol(H11Protocol):
    """Closes a connection whose request does not arrive in time.

    uvicorn itself waits without a limit for the rest of a request, and each open connection costs
    memory.
    """

    request_timeout_s = REQUEST_TIMEOUT_S
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._update_deadline()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_deadline()

    def on_response_complete(self) -> None:
        """Starts the deadline if bytes of the next request arrived together with this one."""
        super().on_response_complete()
        if self.conn.trailing_data[0]:
            self._update_deadline()

    def send_400_response(self, msg: str) -> None:
        """Answers bytes that are not HTTP with problem details, like any other error.

        The rest of the application's response is dropped. If a response has begun already, the
        connection is closed without another one.
        """
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in _UNANSWERED_STATES:
            self._send_malformed_request()
        self.transport.close()

    def _send_malformed_request(self) -> None:
        response = make_malformed_request_response("the request is not valid HTTP/1.1")
        head = h11.Response(
            status_code=response.status_code,
            headers=response.raw_headers,
            reason=HTTPStatus(response.status_code).phrase,
        )
        for event in (head, h11.Data(data=bytes(response.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        super().connection_lost(exc)

    def _update_deadline(self) -> None:
        if self.conn.their_state not in _RECEIVING_STATES or self.transport.is_closing():
            self._cancel_deadline()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.request_timeout_s, self._close_if_receiving)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close_if_receiving(self) -> None:
        self._deadline = None
        if self.conn.their_state in _RECEIVING_STATES:
            self.transport.close()


LISTEN_BACKLOG = 2_048
# Clients close a connection that is idle for 5 to 60 s. If the server closed it first, it could
# lose a request in transit: httpx and uvicorn both have a default of 5 s.
KEEP_ALIVE_S = 75


def listen(host: str, port: int, *, option: str = "--port") -> socket.socket:
    """Returns a listening socket; port 0 chooses a free port.

    Raises InputError if the address can't be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # IPPROTO_TCP is given because asyncio sets TCP_NODELAY only on sockets with this protocol.
    # Without it, a response body waited 40 ms for the client's acknowledgement of the head.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(
            f"can't listen on {host}:{port}: {reason}; give another {option}, or stop the process "
            "that uses it"
        ) from error
    listening.listen(LISTEN_BACKLOG)
    listening.set_inheritable(True)
    return listening


def format_url(server_socket: socket.socket) -> str:
    host, port = server_socket.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class ApiRole:
    """The role of a process that serves the HTTP API.

    `on_ready` is called once the server accepts requests.
    """

    def __init__(
        self,
        name: str,
        app: FastAPI,
        app_state: AppState,
        server_socket: socket.socket,
        *,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self._app_state = app_state
        self._server_socket = server_socket
        settings = app_state.settings
        config = uvicorn.Config(
            app,
            http=RequestTimeoutProtocol,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            proxy_headers=bool(settings.api_proxies),
            forwarded_allow_ips=list(settings.api_proxies),
            timeout_graceful_shutdown=max(1, round(settings.shutdown_timeout_s)),
        )
        self._server = RoleServer(config, on_ready)

    async def run(self, stops: StopEvents) -> None:
        async with asyncio.TaskGroup() as group:
            stop_tasks = [
                group.create_task(self._stop_gracefully(stops)),
                group.create_task(self._stop_now(stops)),
            ]
            await self._server.serve(sockets=[self._server_socket])
            for task in stop_tasks:
                task.cancel()

    async def _stop_gracefully(self, stops: StopEvents) -> None:
        await stops.drain.wait()
        self._app_state.stopping.set()
        self._server.should_exit = True

    async def _stop_now(self, stops: StopEvents) -> None:
        await stops.abort.wait()
        self._server.force_exit = True


class RoleServer(uvicorn.Server):
    """A uvicorn server without signal handlers of its own: RoleProcess handles the signals."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None] = lambda: None) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._on_ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


# Metrics on a port of their own, for a process that has no HTTP API.

METRICS_PATH = "/metrics"


class RoleWithMetrics:
    """A role, and a server of its metrics that runs as long as the role does.

    `refresh` is called before each read of the metrics.
    """

    def __init__(
        self,
        role: Role,
        exposition: Exposition,
        server_socket: socket.socket,
        *,
        refresh: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.name = role.name
        self._role = role
        self._exposition = exposition
        self._server_socket = server_socket
        self._refresh = refresh
        self._is_local = server_socket.getsockname()[0] in LOOPBACK_HOSTS

    async def run(self, stops: StopEvents) -> None:
        config = uvicorn.Config(
            self._handle_request,
            interface="asgi3",
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        server = RoleServer(config)
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=[self._server_socket]))
            try:
                await self._role.run(stops)
            finally:
                server.should_exit = True

    async def _handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await (await self._build_response(scope))(scope, receive, send)

    async def _build_response(self, scope: Scope) -> Response:
        try:
            if self._is_local:
                check_host(Headers(scope=scope), LOOPBACK_HOSTS)
        except ForeignRequestError as error:
            return PlainTextResponse(f"{error}\n", 403)
        if scope["path"] != METRICS_PATH:
            return PlainTextResponse(f"the only path is {METRICS_PATH}\n", 404)
        if scope["method"] not in {"GET", "HEAD"}:
            return PlainTextResponse("the only method is GET\n", 405, {"Allow": "GET"})
        if self._refresh is not None:
            await self._refresh()
        return Response(self._exposition.render(), media_type=MEDIA_TYPE)
