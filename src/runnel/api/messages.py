"""One server-sent event as it goes over the wire."""

import msgspec

from runnel.core.json_types import Json
from runnel.views import HistoryView, moment

MEDIA_TYPE = "text/event-stream"
# Proxies close connections on which nothing is heard for a minute or so.
BEAT_S = 15.0
BEAT = b": \n\n"
_PREFIX = "n"


def message(id_: str, event: str, data: dict[str, Json]) -> bytes:
    """JSON has no line breaks of its own: one line of data is enough."""
    body = msgspec.json.encode(data)
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (id_.encode(), event.encode(), body)


def of_history(place: int, each: HistoryView) -> bytes:
    """What happened, with its place in the history, from 1."""
    data = {"at": moment(each.at), "event": each.event, "fields": each.fields}
    return message(id_of(place), each.event, data)


def id_of(place: int) -> str:
    return _PREFIX + str(place)


def place_of(id_: str) -> int:
    """How many messages a client has got; 0 for an id that no message of a history has."""
    digits = id_.removeprefix(_PREFIX)
    is_known = id_.startswith(_PREFIX) and digits.isascii() and digits.isdecimal()
    return int(digits) if is_known and len(digits) <= len(str(2**31)) else 0
