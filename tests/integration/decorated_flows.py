"""Decorated workflows that the tests run. Tasks append a line to the file `notes` when they run."""

import asyncio
import os
from pathlib import Path
from typing import Any

import runnel
from runnel import Cache, Context, task, workflow
from tests.waiting import wait_until


def note(file: str, text: str) -> None:
    with Path(file).open("a") as log:
        print(text, file=log)


@task(retries=2)
async def fetch(url: str) -> Any:
    return {"url": url, "words": url.split("/"), "size": len(url)}


@task
def count(words: list[str], least: int = 0) -> int:
    return max(least, len(words))


@task
def shout(word: str, sign: str = "!") -> str:
    return word.upper() + sign


@task
def merge(left: Any, right: Any = None) -> Any:
    return [left, right]


@task(retries=0)
def fail(why: str) -> Any:
    raise LookupError(why)


@task(mode="process")
def pid(ctx: Context | None = None) -> Any:
    return {"pid": os.getpid(), "attempt": ctx.attempt if ctx else 0}


@task
def noted(notes: str, text: str) -> str:
    note(notes, text)
    return text


@workflow
def diamond(url: str, least: int = 2) -> Any:
    page = fetch(url)
    return merge(count(page["words"], least), shout.map(page["words"], sign="?"))


@workflow
def fetched_often(url: str) -> Any:
    return fetch(fetch(fetch(url)["url"])["url"])


@workflow
def choosing(url: str) -> Any:
    page = fetch(url)
    large = shout.when(page["size"] > 5)(url)
    small = shout.when(page["size"] <= 5)(url)
    return {"large": large, "small": small, "both": merge(large, small), "was": page["size"] > 5}


@workflow
def nested(urls: list[str]) -> Any:
    return merge(diamond.map(urls, least=7), choosing(urls[0])["both"])


@workflow
def failing(why: str) -> Any:
    return merge(fail(why))


@workflow
def elsewhere() -> Any:
    return pid()


@workflow
def approved(notes: str) -> Any:
    before = noted(notes, "before")
    answer = runnel.wait_for_signal.after(before)("approve")
    return merge(answer["by"], noted.after(answer)(notes, "after"))


@task
async def endless(notes: str) -> str:
    note(notes, "begun")
    await asyncio.Event().wait()
    return "never"


@workflow
def hanging(notes: str) -> Any:
    return endless(notes)


@workflow
def once(notes: str) -> Any:
    return noted(notes, "ran")


BY_URL = Cache(key="{{ input.url }}")


@task(cache=BY_URL)
def first_letter(url: str) -> str:
    return url[0]


@task(cache=BY_URL)
def last_letter(url: str) -> str:
    return url[-1]


@workflow
def letters(url: str) -> Any:
    return [first_letter(url), last_letter(url)]


@task(concurrency_key="{{ input.tenant }}", cache=Cache(key="{{ input.tenant }}"))
def greet(tenant: str) -> str:
    return f"hello {tenant}"


@workflow
def greeting(tenant: str = "acme", note: str = None) -> Any:  # type: ignore[assignment]  # noqa: RUF013  # users write this
    return {"greeting": greet(tenant), "note": note}


# Tasks that run executions.


@task
async def run_level(level: int) -> int:
    return 1 if level == 0 else 1 + await runnel.run(levels, level - 1)


@task
def run_level_in_thread(level: int) -> int:
    return 1 if level == 0 else 1 + int(thread_levels.run(level - 1))


@task(mode="process")
def run_level_in_process(level: int) -> int:
    return 1 if level == 0 else 1 + int(process_levels.run(level - 1))


@workflow
def levels(level: int) -> Any:
    return run_level(level)


@workflow
def thread_levels(level: int) -> Any:
    return run_level_in_thread(level)


@workflow
def process_levels(level: int) -> Any:
    return run_level_in_process(level)


@task(timeout=1, retries=0)
def run_held(notes: str) -> Any:
    try:
        return held.run()
    finally:
        note(notes, "cleaned up")


@workflow
def held() -> Any:
    return runnel.wait_for_signal("go")


@workflow
def holding(notes: str) -> Any:
    return run_held(notes)


@task
async def wait_for_file(file: str) -> str:
    Path(f"{file}.started").touch()
    await wait_until(Path(file).exists, deadline_s=30)
    return file


@workflow
def waiting(file: str) -> Any:
    return wait_for_file(file)


@task(retries=0)
def give_up() -> Any:
    raise runnel.Skip("nothing to do")


@workflow
def skipped_values(url: str) -> Any:
    page = fetch(url)
    skipped = give_up()
    unmet = shout.when(page["size"] < 0)(url)
    return {
        "skipped": skipped,
        "unmet": unmet,
        "item": skipped["title"],
        "list": [skipped, unmet],
        "default": [runnel.default(skipped, "s"), runnel.default(unmet, "u")],
    }


@workflow
def skipped_alone(url: str) -> Any:
    fetch(url)
    return give_up()


@task
def give_null() -> Any:
    return {"null": None, "zero": 0}


@workflow
def defaults_for_null() -> Any:
    value = give_null()
    names = [runnel.default(value[name], "d") for name in ("null", "zero", "missing")]
    return merge(runnel.default(value["null"], value["zero"]), names)


@workflow
def arguments_of_skipped(url: str) -> Any:
    page = fetch(url)
    skipped = give_up()
    unmet = shout.when(page["size"] < 0)(url)
    return {
        "by_itself": merge(skipped, page["url"]),
        "by_condition": merge(unmet, page["url"]),
        "texts": [runnel.text("v {}", skipped), runnel.text("v {}", unmet)],
    }


@workflow
def text_of_skip(url: str) -> Any:
    return merge(fetch(url), runnel.text("v {}", give_up()))


@workflow
def text_of_unmet(url: str) -> Any:
    page = fetch(url)
    return merge(page, runnel.text("v {}", shout.when(page["size"] < 0)(url)))
