"""Records carry the version of their form: what a later one wrote is left alone."""

from typing import TypeVar

import msgspec

from runnel.errors import NewerFormatError, UnreadableFormatError

T = TypeVar("T")


class _Versioned(msgspec.Struct):
    format: int


_version = msgspec.json.Decoder(_Versioned)


def decode_record(data: bytes, decoder: msgspec.json.Decoder[T], *, what: str, known: int) -> T:
    """Raises UnreadableFormatError, and NewerFormatError above the version that is `known`."""
    try:
        found = _version.decode(data).format
        if found > known:
            raise NewerFormatError(
                f"{what} has format {found}, this Runnel knows up to {known}: upgrade Runnel"
            )
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise UnreadableFormatError(f"{what} can't be read: {error}") from error
