"""Decorated workflows that a batch runs."""

from datetime import date
from typing import Any

from pydantic import BaseModel, Field, field_validator

from runnel import run_many, task, workflow

calls: list[int] = []
refused: set[int] = set()


@task(retries=0)
def double(n: int) -> int:
    calls.append(n)
    if n in refused:
        raise ValueError(f"{n} is refused")
    return 2 * n


@workflow
def doubled(n: int) -> int:
    return double(n)


@workflow
def ordered(n: int, order: dict[str, Any]) -> int:
    return double(n)


@workflow(name="doubled")
def ordered_copy(n: int, more: int) -> int:
    return double(n)


@task
async def add_up(numbers: list[int]) -> int:
    inputs = [{"n": number} for number in numbers]
    return sum([result.output async for result in run_many(doubled, inputs)])


@workflow
def summed(numbers: list[int]) -> int:
    return add_up(numbers)


class Positive(BaseModel):
    n: int = Field(gt=0)
    words: set[str] = set()

    @field_validator("n")
    @classmethod
    def check_small(cls, n: int) -> int:
        if n > 100:
            raise ValueError("too large")
        return n


@task(retries=0)
def double_model(number: Positive, day: date) -> int:
    calls.append(number.n)
    return 2 * number.n + day.year


@workflow
def doubled_model(number: Positive, day: date) -> int:
    return double_model(number, day)
