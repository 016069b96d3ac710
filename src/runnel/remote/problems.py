"""Problem details as the errors that they were on the server."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus

import msgspec

from runnel import errors
from runnel.core.json_types import Json
from runnel.errors import InputError, RunnelError


class _Problem(msgspec.Struct, frozen=True):
    """What a client needs of one; `details` are the fields that the error has besides its text."""

    detail: str
    code: str
    details: dict[str, Json] = {}


_decode = msgspec.json.Decoder(_Problem).decode


def _classes() -> Iterator[tuple[str, type[RunnelError]]]:
    for name in errors.__all__:
        found = getattr(errors, name)
        if "code" in vars(found):
            yield found.code, found


CLASSES: Mapping[str, type[RunnelError]] = dict(_classes())


def error_of(status: int, body: bytes) -> RunnelError | None:
    """None for an answer that no Runnel gives.

    A code that this version does not know is an InputError if the caller has to do something
    about it, and a RunnelError otherwise.
    """
    try:
        problem = _decode(body)
    except msgspec.MsgspecError:
        return None
    is_ours = status < HTTPStatus.INTERNAL_SERVER_ERROR
    kind = CLASSES.get(problem.code, InputError if is_ours else RunnelError)
    return _made(kind, problem)


def _made(kind: type[RunnelError], problem: _Problem) -> RunnelError:
    """Without its constructor, which would write the sentence again."""
    error = kind.__new__(kind)
    error.args = (problem.detail,)
    for name, value in problem.details.items():
        setattr(error, name, tuple(value) if isinstance(value, list) else value)
    return error
