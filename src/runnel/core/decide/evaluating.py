"""Evaluating a template inside the core: a value, the user's error, or a blob that must come."""

import msgspec

from runnel.core.decide.turn import Turn
from runnel.core.effects import LoadBlob
from runnel.core.ids import NO_ITEM
from runnel.core.json_types import Json
from runnel.core.retry import MESSAGE_CHARS_MAX, ErrorInfo
from runnel.core.scope import NO_ITEM_VALUE, BlobNeededError, ExecutionScope
from runnel.core.templates import Expression, TemplateError, Tree

SHOWN_CHARS = 60
# Of concurrency keys and signals: they are names, not data.
NAME_CHARS_MAX = 500

_encoder = msgspec.json.Encoder()


class Evaluated(msgspec.Struct, frozen=True):
    value: Json


def evaluate(
    turn: Turn, index: int, compiled: Tree | Expression | None, *, item: int = NO_ITEM
) -> Evaluated | ErrorInfo | None:
    """None when a blob is needed first: it is asked for, and the node is looked at again then."""
    execution = turn.execution
    item_value: object = NO_ITEM_VALUE
    if item != NO_ITEM:
        items = execution.maps[index].items
        item_value = items[item] if items else None
    scope = ExecutionScope(execution, turn.moment.values, item=item_value)
    try:
        match compiled:
            case Tree():
                return Evaluated(compiled.resolve(scope))
            case Expression():
                return Evaluated(compiled.evaluate(scope))
            case None:
                return Evaluated(None)
    except BlobNeededError as needed:
        await_blob(turn, (index, item), needed.key)
        return None
    except TemplateError as error:
        return error_of(error)


def await_blob(turn: Turn, place: tuple[int, int], key: str) -> None:
    """Asks for the blob once; BlobLoaded looks at `place` again."""
    if place not in turn.execution.awaited_blobs:
        turn.execution.awaited_blobs[place] = None
        turn.effects.append(LoadBlob(turn.execution.id, key))


def shown(value: Json) -> str:
    """A value as a sentence quotes it: the beginning of its JSON."""
    text = _encoder.encode(value).decode()
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"


def error_of(error: Exception) -> ErrorInfo:
    """A user's mistake found while deciding: never worth a retry."""
    message = str(error)[:MESSAGE_CHARS_MAX]
    return ErrorInfo(type=type(error).__name__, message=message, retryable=False)
