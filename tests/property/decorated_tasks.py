"""Tasks that random workflows call. They are in a module, because they must be found by name."""

from typing import Any

from runnel import task, workflow


@task
def alpha(value: Any, other: Any = None) -> Any:
    return [value, other]


@task
async def beta(value: Any, other: Any = None) -> Any:
    return {"value": value, "other": other}


@task(name="total")
def gamma(value: Any, *, other: Any = None) -> Any:
    return value


@workflow
def child(value: int) -> Any:
    return alpha(value)
