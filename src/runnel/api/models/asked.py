"""Bodies of requests: JSON is taken as it is, and nothing is made of it that it is not."""

from datetime import datetime
from typing import Annotated, TypeAlias, TypeVar

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

T = TypeVar("T")


class Asked(BaseModel):
    """A 1 is no true, "5" is no number, and what is not known is refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _text(value: object) -> object:
    """A number is no time: nobody knows whether seconds are meant, or milliseconds."""
    if isinstance(value, datetime):  # of a model that was read before
        return value
    if not isinstance(value, str) or value.strip("+-.0123456789") == "":
        raise PydanticCustomError("moment", "expected a time like 2026-01-31T09:30:00Z")
    return value


When: TypeAlias = Annotated[AwareDatetime, BeforeValidator(_text), Field(strict=False)]
"""A time in a request, with its offset from UTC."""

Named: TypeAlias = Annotated[T, Field(strict=False)]
"""One of the names of an enumeration: JSON has them as texts."""
