"""Times in answers: ISO-8601 in UTC."""

from typing import Annotated, TypeAlias

from pydantic import Field

Moment: TypeAlias = Annotated[
    str, Field(json_schema_extra={"format": "date-time"}, examples=["2026-01-31T09:30:00.250Z"])
]
