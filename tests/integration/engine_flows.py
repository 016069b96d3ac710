"""Decorated workflows for tests of `runnel.Engine`."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import runnel
from runnel import task, workflow
from tests.integration.decorated_flows import note
from tests.waiting import wait_until


@dataclass
class Page:
    url: str
    words: int


@task
async def read(url: str) -> Page:
    return Page(url, len(url.split("/")))


@task
def double(number: int) -> int:
    return 2 * number


@task(retries=0)
def fail() -> None:
    raise LookupError("no such page")


@task
def say(notes: str, text: str) -> str:
    note(notes, text)
    return text


@task
async def hold_until(notes: str, gate: str) -> int:
    """Notes the process, waits for the file `gate`, and notes the process again."""
    note(notes, f"begun {os.getpid()}")
    await wait_until(Path(gate).exists, deadline_s=60)
    note(notes, f"ended {os.getpid()}")
    return os.getpid()


@task
def run_inside(number: int) -> int:
    return doubled.run(number)


@task
def submit_inside(number: int) -> str:
    return doubled.submit(number)


@task(retries=0, timeout=0.5)
def wait_inside() -> Any:
    return waiting.run()


@workflow
def page(url: str) -> Page:
    return read(url)


@workflow
def doubled(number: int) -> int:
    return double(number)


@workflow
def failing() -> None:
    return fail()


@workflow
def approved(notes: str) -> Any:
    before = say(notes, "before")
    approval = runnel.wait_for_signal.after(before)("approve")
    return {"by": approval["by"], "said": say(notes, "after")}


@workflow
def waiting() -> Any:
    return runnel.wait_for_signal("never")


@workflow
def held(notes: str, gate: str) -> int:
    return hold_until(notes, gate)


@workflow
def runs_inside(number: int) -> int:
    return run_inside(number)


@workflow
def submits_inside(number: int) -> str:
    return submit_inside(number)


@workflow
def waits_inside() -> Any:
    return wait_inside()
