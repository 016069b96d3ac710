"""Numbers for Prometheus on a port of their own, of a process that answers nothing else."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import uvicorn
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from runnel.api.security.origins import LOOPBACK, check_host
from runnel.api.server import QuietServer
from runnel.errors import ForeignRequestError
from runnel.runtime.engine import Stops
from runnel.runtime.roles import Role
from runnel.telemetry.exposition import MEDIA_TYPE, Exposition

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
