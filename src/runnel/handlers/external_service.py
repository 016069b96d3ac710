"""The handler `call_external_service` (alias `external_service`): sends one HTTP request.

The output is an object with `status`, `headers`, `body` and `result`, the same value as `body`.
docs/reference/handlers.md lists the settings.
"""

from collections.abc import Mapping

from runnel.authoring.calls import ContextPlace, FunctionCall, Mode
from runnel.authoring.context import Context
from runnel.core.values import Json
from runnel.handlers.environment import HandlerEnvironment, check_config
from runnel.handlers.http import OutboundHttpClient
from runnel.handlers.http.request import (
    build_http_request,
    build_status_error,
    format_url,
    parse_status_policy,
)
from runnel.handlers.http.response_body import decode_body
from runnel.handlers.mock import NO_RESPONSE, MockService, parse_mock

# Cookies are credentials, so they are not stored in the history.
HIDDEN_HEADERS = frozenset({"set-cookie", "set-cookie2"})


class ExternalService:
    """Runs the tasks of the handler `call_external_service` with a shared HTTP client."""

    def __init__(
        self, name: str, http_client: OutboundHttpClient, environment: HandlerEnvironment
    ) -> None:
        self._name = name
        self._http_client = http_client
        self._environment = environment

    def plan(self, config: Json) -> FunctionCall:
        """Plans the call of one task; raises InputError with every problem of the config."""
        if self._environment.mocks_services:
            config = {"mock": True, **config}
        check_config(self._name, config)
        return FunctionCall(
            function=self._call, mode=Mode.LOOP, positional=(config,), place=ContextPlace.LAST
        )

    async def _call(self, config: Mapping[str, Json], ctx: Context) -> Json:
        mock = parse_mock(config)
        if mock is not None:
            return await self._call_mock(config, mock, ctx)
        request = build_http_request(config, idempotency_key=ctx.idempotency_key)
        async with self._http_client.open(request) as response:
            head = response.head
            data = await response.read(request.limits.bytes_max)
        body = decode_body(data, head.headers, kind=request.response_kind, where=head.where)
        headers = {key: text for key, text in head.headers.items() if key not in HIDDEN_HEADERS}
        return {"status": head.status, "headers": headers, "body": body, "result": body}

    async def _call_mock(self, config: Mapping[str, Json], mock: MockService, ctx: Context) -> Json:
        status = await mock.wait_for_status(ctx, self._environment.clock)
        url = config.get("url", "https://mock")
        policy = parse_status_policy(config)
        if not policy.is_ok(status):
            where = f"the mock of {format_url(url)}"
            raise build_status_error(policy, where, status, body="", retry_after_s=None)
        default_body = {"mock": True, "method": config.get("method", "GET"), "url": url}
        body = default_body if mock.response is NO_RESPONSE else mock.response
        return {"status": status, "headers": {}, "body": body, "result": body}
