"""What is done to many executions, as requests and answers have it."""

from pydantic import BaseModel, ConfigDict, Field

from runnel.api.filters import Chosen
from runnel.api.models.executions import RerunWish


class BulkRequest(Chosen):
    """Which executions, in steps: give `next` of the answer as `after`, until it is null."""

    model_config = ConfigDict(strict=True)

    every: bool = Field(default=False, description="Needed when nothing says which ones")
    after: str | None = Field(default=None, max_length=4_000)


class BulkCancelRequest(BulkRequest):
    reason: str = Field(default="", max_length=10_000)
    force: bool = Field(default=False, description="Clean-up nodes do not run either")


class BulkRerunRequest(BulkRequest, RerunWish):
    """By default those that have failed; each once for each `key`."""

    key: str = Field(default="", max_length=500)


class BulkFailureAnswer(BaseModel):
    execution_id: str
    error: str


class BulkAnswer(BaseModel):
    """`ids` are what was cancelled, or the new executions."""

    ids: list[str]
    known: int = Field(description="Had been rerun so before")
    failed: int
    failures: list[BulkFailureAnswer] = Field(description="The first hundred, with the reason")
    next: str | None = Field(description="Give this as `after` to go on; null when all is done")
