"""The workflows of the old data, the functions that they call, and their expected outputs.

`make.py` starts the workflows and kills the process in the middle. The test resumes them.
"""

from typing import Any

# Each call appends a line to the log, so a repeated call is visible. `hold` waits until the gate
# exists. Both are files in the working directory.
LOG, GATE = "log.txt", "gate.txt"
STEPS = """
import asyncio
from pathlib import Path

def note(text):
    with Path("log.txt").open("a") as log:
        print(text, file=log, flush=True)
    return text

async def hold(text):
    note(text)
    while not Path("gate.txt").exists():
        await asyncio.sleep(0.02)
    return text

async def item(number, text):
    note(f"item {number}") if number < 2 else await hold(f"item {number}")
    return [number, len(text)]

def flaky(text):
    note(text)
    if not Path("gate.txt").exists():
        raise RuntimeError("it is too early")
    return text

def large():
    return {"text": "large " * 50_000}

def boom():
    raise ValueError("it broke")
"""

# SOON_S is not due before the process is killed, and overdue in every test. NEVER_S is never due.
SOON_S, NEVER_S = 30, 3_000_000_000
# Large enough that the items of a map share one stored copy.
SHARED = "s" * 90_000


def call(name: str, function: str, *after: str, **more: Any) -> dict[str, Any]:
    """Returns a node that calls a function of STEPS with `text`, which that function logs."""
    text = more.pop("text", None)
    args = {} if text is None else {"args": {"text": text}}
    config = {"function": f"steps:{function}", **args}
    return {**node(name, "python", *after, **config), **more}


def node(name: str, handler: str, *after: str, **config: Any) -> dict[str, Any]:
    return {"id": name, "handler": handler, "dependencies": list(after), "config": config}


def first(workflow: str) -> dict[str, Any]:
    """Returns a node that is settled in all of the old data: it must never run again."""
    return call("first", "note", text=f"{workflow} first")


def report(version: int) -> dict[str, Any]:
    text = f"version {version}: {{{{ input.shop }}}} is open"
    return {
        "name": "report",
        "nodes": [first("report"), node("last", "output", "first", text=text)],
    }


CHILD = {
    "name": "child",
    "nodes": [
        first("child"),
        call("held", "hold", "first", text="child held"),
        node("last", "output", "held", child=True),
    ],
}
MAP_NODE = {
    **call("each", "item", "list", for_each="list.numbers"),
    "config": {
        "function": "steps:item",
        "args": {"number": "{{ item }}", "text": "{{ input.text }}"},
    },
}
RETRY = {"max_retries": 3, "initial_delay": SOON_S, "jitter": False}
FLOWS: dict[str, list[dict[str, Any]]] = {
    "failed": [first("failed"), call("boom", "boom", "first"), node("last", "output", "boom")],
    "cancelled": [first("cancelled"), node("go", "wait_for_signal", "first", signal="go")],
    "interrupted": [
        first("interrupted"),
        call("held", "hold", "first", text="interrupted held"),
        node("last", "output", "held", text="{{ held }}"),
    ],
    "approval": [
        first("approval"),
        node("approve", "wait_for_signal", "first", signal="approve"),
        node("last", "output", "approve", by="{{ approve.by }}"),
    ],
    "nap": [
        first("nap"),
        node("sleep", "sleep", "first", seconds=SOON_S),
        call("last", "note", "sleep", text="nap last"),
    ],
    "long-nap": [first("long-nap"), node("sleep", "sleep", "first", seconds=NEVER_S)],
    "map": [
        node("list", "output", numbers=[0, 1, 2, 3]),
        MAP_NODE,
        node("last", "output", "each", found="{{ each }}"),
    ],
    "parent": [
        first("parent"),
        node("child", "workflow", "first", definition=CHILD),
        node("last", "output", "child", of="{{ child }}"),
    ],
    "large": [
        call("make", "large"),
        call("held", "hold", "make", text="large held"),
        node("last", "output", "held", length="{{ make.text | length }}"),
    ],
    "retry": [
        first("retry"),
        call("flaky", "flaky", "first", text="retry flaky", retry=RETRY),
    ],
    "keyed": [call("held", "hold", text="keyed held", concurrency_key="desk")],
    "held": [call("last", "note", text="held last")],
}
# The nodes of a `runnel run`. Only the data directory has this execution.
RUN = [first("run"), call("held", "hold", "first", text="run held")]


def document(name: str) -> dict[str, Any]:
    return {"name": name, "nodes": RUN if name == "run" else FLOWS[name]}


# Log lines of the calls that `hold` when the process is killed. These calls run again.
HOLDING = ["interrupted held", "item 2", "item 3", "child held", "large held", "keyed held"]
# The final output of each execution. Two executions share the concurrency key of `keyed`.
OUTPUTS: dict[str, Any] = {
    "interrupted": {"text": "interrupted held"},
    "approval": {"by": "ada"},
    "nap": "nap last",
    "map": {"found": [[number, len(SHARED)] for number in range(4)]},
    "parent": {"of": {"child": True}},
    "large": {"length": 300_000},
    "retry": "retry flaky",
    "keyed": "keyed held",
    "keyed too": "keyed held",
    "held": "held last",
    "run": "run held",
}
# Log lines that may appear after the kill. The webhook of the test runs a report.
RUN_AFTER = {*HOLDING, "nap last", "retry flaky", "held last", "run held", "report first"}
