"""Where a page of executions ended, as a text that callers keep and give back.

Newest first, by (created_at, id): the place stays what it is when the execution there is deleted,
and nothing that begins later moves it.
"""

import base64
import binascii
from math import inf, isfinite
from typing import NewType, TypeAlias

import msgspec

from runnel.errors import InputError

Cursor = NewType("Cursor", str)
"""Opaque: what it is made of may change; one of an earlier version is refused then."""
Place: TypeAlias = tuple[float, str]

NEWEST: Place = (inf, "")
"""Before everything."""

_CHARS_MAX = 4_000
_decode = msgspec.json.Decoder(tuple[float, str]).decode


def cursor_at(place: Place) -> Cursor:
    data = base64.urlsafe_b64encode(msgspec.json.encode(place))
    return Cursor(data.decode().rstrip("="))


def place_at(cursor: str) -> Place:
    """Raises InputError for a text that no page has given."""
    try:
        if len(cursor) > _CHARS_MAX:
            raise ValueError
        padded = cursor + "=" * (-len(cursor) % 4)
        place = _decode(base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True))
        if not isfinite(place[0]):
            raise ValueError
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise InputError("the place in a list: expected what the page before it gave") from error
    return place
