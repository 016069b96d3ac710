"""What programs look up: executions by id, definitions by hash, and what the server is."""

from typing import Literal

from pydantic import BaseModel

from runnel.api.models.executions import Listed


class FoundList(BaseModel):
    items: list[Listed]


class PartitionOf(BaseModel):
    """Where an execution is decided."""

    partition: int


class ServerAnswer(BaseModel):
    """`engine` says where tasks run: in the server's own process, or by workers around a Redis."""

    version: str
    engine: Literal["embedded", "redis"]
