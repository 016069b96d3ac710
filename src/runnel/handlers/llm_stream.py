"""Assembles a streamed chat completion from server-sent events."""

from collections.abc import AsyncGenerator, AsyncIterator

import msgspec

from runnel.core.message_text import shorten
from runnel.core.values import Json
from runnel.errors import ServiceError

DONE_MARKER = "[DONE]"
# How many tool calls a completion may have. The limit protects memory.
TOOL_CALLS_MAX = 128
ERROR_CHARS_MAX = 200


class CompletionAssembler:
    """Builds the completion that the service would have sent without streaming."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._texts: list[str] = []
        self._calls: dict[int, dict[str, Json]] = {}
        self._role = "assistant"
        self._model: Json = None
        self._usage: Json = None
        self._finish_reason: Json = None
        self._is_done = False

    async def collect(self, lines: AsyncIterator[str]) -> Json:
        """Returns the completion; raises ServiceError if the stream is incomplete or invalid."""
        async for line in lines:
            name, _, data = line.partition(":")
            if name == "data" and not self._add(data.strip()):
                break
        if not self._is_done and self._finish_reason is None:
            raise ServiceError(f"{self._where} ended its response before it was complete")
        return self._build_completion()

    def _add(self, data: str) -> bool:
        """Adds the data of one event; returns False at the end of the stream."""
        if data == DONE_MARKER:
            self._is_done = True
            return False
        try:
            piece = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ServiceError(f"{self._where} sent an event that is not JSON: {error}") from error
        if not isinstance(piece, dict):
            raise ServiceError(f"{self._where} sent an event that is not an object")
        if "error" in piece:
            raise ServiceError(
                f"{self._where} reported an error: {shorten(str(piece['error']), ERROR_CHARS_MAX)}"
            )
        self._model = piece.get("model") or self._model
        self._usage = piece.get("usage") or self._usage
        choices = piece.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            self._add_choice(choices[0])
        return True

    def _add_choice(self, choice: dict[str, Json]) -> None:
        self._finish_reason = choice.get("finish_reason") or self._finish_reason
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return
        if isinstance(delta.get("content"), str):
            self._texts.append(delta["content"])
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                self._add_call(call)

    def _add_call(self, piece: dict[str, Json]) -> None:
        """Adds a piece of a tool call: the name comes once, the arguments in several parts."""
        index = piece.get("index", 0)
        if not isinstance(index, int) or not 0 <= index < TOOL_CALLS_MAX:
            raise ServiceError(f"{self._where} sent a tool call with an invalid index")
        call = self._calls.setdefault(
            index, {"id": "", "type": "function", "function": {"name": [], "arguments": []}}
        )
        call["id"] = piece.get("id") or call["id"]
        function = piece.get("function")
        if isinstance(function, dict):
            for name, texts in call["function"].items():
                texts.append(str(function.get(name) or ""))

    def _build_completion(self) -> Json:
        message: dict[str, Json] = {"role": self._role, "content": "".join(self._texts)}
        if self._calls:
            message["tool_calls"] = [
                _join_tool_call(self._calls[index]) for index in sorted(self._calls)
            ]
        choice = {"message": message, "finish_reason": self._finish_reason}
        return {"choices": [choice], "model": self._model, "usage": self._usage}


def _join_tool_call(call: dict[str, Json]) -> Json:
    """Returns a tool call with joined texts; repeated concatenation would be quadratic."""
    function = {name: "".join(texts) for name, texts in call["function"].items()}
    return {**call, "function": function}


async def iterate_lines(chunks: AsyncIterator[bytes], *, where: str) -> AsyncGenerator[str, None]:
    """Yields the lines of a streamed body; raises ServiceError if the data is not UTF-8."""
    line: list[bytes] = []
    async for chunk in chunks:
        first, *later = chunk.split(b"\n")
        line.append(first)
        for part in later:  # a line break precedes each part
            yield _decode_line(b"".join(line), where)
            line = [part]
    if any(line):
        yield _decode_line(b"".join(line), where)


def _decode_line(data: bytes, where: str) -> str:
    try:
        return data.decode().rstrip("\r")
    except UnicodeDecodeError as error:
        raise ServiceError(f"{where} answered with data that is not text: {error}") from error
