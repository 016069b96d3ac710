"""Changes of executions, as answers have them."""

from pydantic import BaseModel, Field

from runnel.core.states import ExecutionState


class ChangeAnswer(BaseModel):
    """`status` is null when only something inside the execution is new."""

    execution_id: str
    status: ExecutionState | None
    position: str


class Changes(BaseModel):
    items: list[ChangeAnswer]
    position: str = Field(description="Give this as `after` to get what comes next")
    has_gap: bool = Field(description="Something is not known any more: list anew")
