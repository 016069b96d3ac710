"""Checks the values of `format` and `contentEncoding` in a JSON Schema.

The formats accept what a parameter with the matching type accepts. A date-time without an offset is
accepted, because Python has such values.
"""

import datetime as dt
import re
from collections.abc import Mapping
from decimal import Decimal
from uuid import UUID

import msgspec

_TYPES: Mapping[str, type] = {
    "date": dt.date,
    "date-time": dt.datetime,
    "time": dt.time,
    "duration": dt.timedelta,
    "uuid": UUID,
    "decimal": Decimal,
}
FORMATS = tuple(_TYPES)
BASE64 = "base64"
# ISO 8601 has years and months, which a timedelta does not have.
_LONG_DURATION = re.compile(r"P(?=\d)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+S)?)?")


def has_format(text: str, name: str) -> bool:
    """Returns True if the text has the format, or if the format is not in FORMATS."""
    kind = _TYPES.get(name)
    if kind is None or _is_convertible(text, kind):
        return True
    return name == "duration" and _LONG_DURATION.fullmatch(text) is not None


def has_encoding(text: str, name: str) -> bool:
    """Returns True if the text has the encoding, or if the encoding is not base64."""
    return name != BASE64 or _is_convertible(text, bytes)


def _is_convertible(text: str, kind: type) -> bool:
    try:
        msgspec.convert(text, kind)
    except (msgspec.ValidationError, ValueError):
        return False
    return True
