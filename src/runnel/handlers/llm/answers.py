"""A completion as a node's output, whether it came in one piece or as a stream."""

from collections.abc import Mapping
from typing import Any

import msgspec

from runnel.core.json_types import Json
from runnel.errors import ServiceError, ServiceRefusedError
from runnel.handlers.shortening import short

TOKENS = ("prompt_tokens", "completion_tokens", "total_tokens")
COUNT_MAX = 10**12
CHARS = 500
# Of a bill that is not paid: the status is that of a busy service, but no waiting helps.
NO_CREDIT = "insufficient_quota"


def output_of(completion: Json, *, where: str, wants_json: bool) -> dict[str, Json]:
    """Raises ServiceError for an answer that is no completion: the next one may be."""
    choice = _first(completion, where)
    message = choice.get("message")
    if not isinstance(message, dict):
        raise _not_one(where, "its first choice has no message")
    text = message.get("content")
    if text is not None and not isinstance(text, str):
        raise _not_one(where, "the content of its message is no text")
    output: dict[str, Json] = {
        "text": text or "",
        "message": message,
        "finish_reason": choice.get("finish_reason"),
        "model": completion.get("model"),
        "usage": usage_of(completion.get("usage")),
    }
    if wants_json:
        output["json"] = _json(text or "", where)
    return output


def usage_of(found: Json) -> dict[str, int]:
    """The three counts, 0 for what the service did not say, or said in a way that is no count."""
    said: Mapping[str, Any] = found if isinstance(found, dict) else {}
    counts = {name: _count(said.get(name)) for name in TOKENS}
    if not counts["total_tokens"]:
        counts["total_tokens"] = counts["prompt_tokens"] + counts["completion_tokens"]
    return counts


def _first(completion: Json, where: str) -> dict[str, Json]:
    said: Mapping[str, Json] = completion if isinstance(completion, dict) else {}
    choices = said.get("choices")
    if "error" in said and not choices:
        raise _error(said["error"], where)
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise _not_one(where, "it has no choices")
    first: dict[str, Json] = choices[0]
    return first


def _error(error: Json, where: str) -> ServiceError:
    """Some services say that they have failed with the status of success."""
    text = short(error if isinstance(error, str) else msgspec.json.encode(error).decode(), CHARS)
    kind = ServiceRefusedError if NO_CREDIT in text else ServiceError
    return kind(f"{where} answered with an error: {text}")


def _count(value: Json) -> int:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= COUNT_MAX
    return value if is_count else 0


def _json(text: str, where: str) -> Json:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ServiceError(f"{where} was asked for JSON and wrote what is none: {error}") from error


def _not_one(where: str, why: str) -> ServiceError:
    return ServiceError(f"{where} answered what is no chat completion: {why}")
