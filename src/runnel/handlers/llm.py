"""The handler `llm_service`: requests a chat completion from a service with OpenAI's API.

The output is an object with `result`, `text`, `message`, `finish_reason`, `model` and `usage`. If
response_format requests JSON, the output also has `json`, and `result` is the same value.
docs/reference/handlers.md lists the settings.
"""

from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import msgspec

from runnel.authoring.calls import ContextPlace, FunctionCall, Mode
from runnel.authoring.context import Context
from runnel.core.message_text import shorten
from runnel.core.values import Json
from runnel.errors import ServiceBusyError, ServiceError, ServiceRefusedError
from runnel.handlers.environment import HandlerEnvironment, check_config, convert_texts
from runnel.handlers.http import OutboundHttpClient
from runnel.handlers.http.request import (
    HttpRequest,
    StatusPolicy,
    build_status_error,
    encode_header_value,
    parse_headers,
    parse_limits,
)
from runnel.handlers.http.response_body import decode_body
from runnel.handlers.llm_stream import CompletionAssembler, iterate_lines
from runnel.handlers.mock import NO_RESPONSE, MockService, parse_mock

# Builds the output of the node from a completion, streamed or not.

TOKEN_COUNT_FIELDS = ("prompt_tokens", "completion_tokens", "total_tokens")
TOKEN_COUNT_MAX = 10**12
ERROR_CHARS_MAX = 500
# OpenAI sends this code if the account has no credit, with the status of a busy service. A retry
# does not help.
QUOTA_ERROR_CODE = "insufficient_quota"


def build_output(completion: Json, *, where: str, wants_json: bool) -> dict[str, Json]:
    """Builds the output of the node; raises ServiceError if the response is not a completion."""
    choice = _get_first_choice(completion, where)
    message = choice.get("message")
    if not isinstance(message, dict):
        raise _build_format_error(where, "its first choice has no message")
    text = message.get("content")
    if text is not None and not isinstance(text, str):
        raise _build_format_error(where, "the content of its message is not a text")
    output: dict[str, Json] = {
        "result": text or "",
        "text": text or "",
        "message": message,
        "finish_reason": choice.get("finish_reason"),
        "model": completion.get("model"),
        "usage": parse_usage(completion.get("usage")),
    }
    if wants_json:
        output["result"] = output["json"] = _parse_json(text or "", where)
    return output


def parse_usage(usage: Json) -> dict[str, int]:
    """Returns the three token counts; 0 for a missing or invalid count."""
    fields: Mapping[str, Any] = usage if isinstance(usage, dict) else {}
    counts = {name: _parse_count(fields.get(name)) for name in TOKEN_COUNT_FIELDS}
    if not counts["total_tokens"]:
        counts["total_tokens"] = counts["prompt_tokens"] + counts["completion_tokens"]
    return counts


def _get_first_choice(completion: Json, where: str) -> dict[str, Json]:
    fields: Mapping[str, Json] = completion if isinstance(completion, dict) else {}
    choices = fields.get("choices")
    if "error" in fields and not choices:
        raise _build_service_error(fields["error"], where)
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise _build_format_error(where, "it has no choices")
    first: dict[str, Json] = choices[0]
    return first


def _build_service_error(error: Json, where: str) -> ServiceError:
    """Builds the error for a response that has a success status but contains an error."""
    text = shorten(
        error if isinstance(error, str) else msgspec.json.encode(error).decode(), ERROR_CHARS_MAX
    )
    kind = ServiceRefusedError if QUOTA_ERROR_CODE in text else ServiceError
    return kind(f"{where} answered with an error: {text}")


def _parse_count(value: Json) -> int:
    is_count = (
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= TOKEN_COUNT_MAX
    )
    return value if is_count else 0


def _parse_json(text: str, where: str) -> Json:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ServiceError(f"{where} answered with invalid JSON: {error}") from error


def _build_format_error(where: str, problem: str) -> ServiceError:
    return ServiceError(f"the response of {where} is not a chat completion: {problem}")


# Builds the request from a config.

# The default limit of one request: models are slow. The default timeout_seconds of a node is 300.
TIMEOUT_S = 120.0
COMPLETIONS_PATH = "/chat/completions"
FORWARDED_SETTINGS = ("model", "temperature", "max_tokens", "response_format")
# Redirects are not followed: a redirect of the service is an error.
REDIRECTS_MAX = 0


def build_completion_request(
    config: Mapping[str, Json], environment: HandlerEnvironment, *, idempotency_key: str
) -> HttpRequest:
    """Builds the HTTP request from a checked config.

    The operator's key is sent to the operator's URL only. A config with its own base_url needs its
    own api_key.
    """
    base = config.get("base_url", environment.llm_url)
    key = config.get("api_key", environment.llm_api_key if "base_url" not in config else None)
    headers = {
        "content-type": "application/json",
        "idempotency-key": encode_header_value(idempotency_key),
    }
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    limits = parse_limits(config, total_s=TIMEOUT_S)
    return HttpRequest(
        method="POST",
        url=base.rstrip("/") + COMPLETIONS_PATH,
        headers={**headers, **parse_headers(config)},
        content=msgspec.json.encode(_build_request_body(config)),
        limits=msgspec.structs.replace(limits, redirects=REDIRECTS_MAX),
        response_kind="json",
    )


def build_messages(config: Mapping[str, Json]) -> list[Json]:
    if "messages" in config:
        return list(config["messages"])
    system = [{"role": "system", "content": config["system"]}] if "system" in config else []
    return [*system, {"role": "user", "content": config["prompt"]}]


def wants_json(config: Mapping[str, Json]) -> bool:
    kind = config.get("response_format", {}).get("type")
    return kind in {"json_object", "json_schema"}


def _build_request_body(config: Mapping[str, Json]) -> Json:
    request = {name: config[name] for name in FORWARDED_SETTINGS if name in config}
    request["messages"] = build_messages(config)
    if config.get("stream", False):
        request["stream"] = True
        request["stream_options"] = {"include_usage": True}
    return {**request, **config.get("extra", {})}


HANDLER_NAME = "llm_service"
TOKENS_METRIC = "llm_tokens"
CHARS_PER_TOKEN = 4
MOCK_PROMPT_CHARS_MAX = 200


class LlmService:
    """Runs the tasks of the handler `llm_service` with a shared HTTP client."""

    def __init__(self, environment: HandlerEnvironment, http_client: OutboundHttpClient) -> None:
        self._environment = environment
        self._http_client = http_client

    def plan(self, config: Json) -> FunctionCall:
        """Plans the call of one task; raises InputError with every problem of the config."""
        if self._environment.mocks_services:
            config = {"mock": True, **config}
        config = convert_texts(config, ("prompt", "system"))
        check_config(HANDLER_NAME, config)
        return FunctionCall(
            function=self._complete,
            mode=Mode.LOOP,
            positional=(config,),
            place=ContextPlace.LAST,
            knows_secrets=self._environment.llm_api_key is not None,
        )

    async def _complete(self, config: Mapping[str, Json], ctx: Context) -> Json:
        mock = parse_mock(config)
        if mock is None:
            request = build_completion_request(
                config, self._environment, idempotency_key=ctx.idempotency_key
            )
            completion, where = await self._request_completion(
                request, is_stream=_is_streaming(config)
            )
        else:
            where = "the mock"
            completion = await self._mock_completion(config, mock, ctx)
        output = build_output(completion, where=where, wants_json=wants_json(config))
        model = str(output["model"] or config.get("model", "mock"))
        for kind in ("prompt", "completion"):
            ctx.metrics.count(
                TOKENS_METRIC, output["usage"][f"{kind}_tokens"], kind=kind, model=model
            )
        return output

    async def _request_completion(
        self, request: HttpRequest, *, is_stream: bool
    ) -> tuple[Json, str]:
        bytes_max = request.limits.bytes_max
        try:
            async with self._http_client.open(request) as response:
                head = response.head
                if is_stream and "text/event-stream" in head.headers.get("content-type", ""):
                    async with aclosing(
                        iterate_lines(response.iterate_chunks(bytes_max), where=head.where)
                    ) as lines:
                        return await CompletionAssembler(head.where).collect(lines), head.where
                data = await response.read(bytes_max)
        except ServiceBusyError as error:
            if QUOTA_ERROR_CODE in str(error):
                raise ServiceRefusedError(str(error), status=error.status) from error
            raise
        return decode_body(data, head.headers, kind="json", where=head.where), head.where

    async def _mock_completion(
        self, config: Mapping[str, Json], mock: MockService, ctx: Context
    ) -> Json:
        status = await mock.wait_for_status(ctx, self._environment.clock)
        if not StatusPolicy().is_ok(status):
            raise build_status_error(
                StatusPolicy(), "the mock", status, body="", retry_after_s=None
            )
        prompt = str(build_messages(config)[-1].get("content", ""))
        text = _build_mock_text(prompt, mock.response)
        tokens = {
            "prompt_tokens": _estimate_tokens(prompt),
            "completion_tokens": _estimate_tokens(text),
        }
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return {"choices": [choice], "model": config.get("model", "mock"), "usage": tokens}


def _is_streaming(config: Mapping[str, Json]) -> bool:
    return config.get("stream", False) is True


def _build_mock_text(prompt: str, response: Json) -> str:
    if response is NO_RESPONSE:
        return f"This is a mock completion of: {shorten(prompt, MOCK_PROMPT_CHARS_MAX)}"
    return response if isinstance(response, str) else msgspec.json.encode(response).decode()


def _estimate_tokens(text: str) -> int:
    """Returns roughly the number of tokens that a model would count."""
    return -(-len(text) // CHARS_PER_TOKEN)
