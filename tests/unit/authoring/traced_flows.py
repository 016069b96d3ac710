"""Decorated functions for the tests of tracing."""

import copy
import enum
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Literal, TypedDict

import runnel
from runnel import Context, RateLimit, RetryPolicy, task, workflow


@task(retries=3, timeout=30)
async def fetch(url: str) -> Any:
    return {"url": url, "title": url.upper(), "links": ["a", "b"]}


@task
def parse(page: Any, depth: int = 1) -> Any:
    return [page, depth]


@task
def scan(page: Any, **settings: Any) -> Any:
    return [page, settings]


@task
def merge(left: Any, right: Any = None) -> Any:
    return [left, right]


@task(
    name="clean",
    retries=RetryPolicy(max_retries=1, jitter=False),
    timeout=timedelta(minutes=2),
    soft_timeout=60,
    run_when="all_settled",
    resource_tag="api",
    concurrency_key="{{ input.url }}",
    concurrency_limit=2,
    queue="slow",
    cache=timedelta(hours=1),
    mode="process",
)
def tidy_up(what: Any, ctx: Context | None = None) -> Any:
    return what


@task
def input(value: Any) -> Any:  # noqa: A001  # a name that templates reserve
    return value


@workflow
def diamond(url: str):  # type: ignore[no-untyped-def]  # noqa: ANN201  # as users write it
    page = fetch(url)
    return merge(parse(page), scan(page))


@workflow
def all_options(url: str) -> Any:
    return tidy_up(fetch(url))


class Kind(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Options(TypedDict):
    deep: bool


@dataclass
class Author:
    name: str


@workflow(
    name="annual",
    on_failure="continue",
    timeout=timedelta(hours=1),
    sla=60,
    max_concurrency=2,
    priority=7,
    rate_limits={"api": 3.0, "slow": RateLimit(rate_per_second=1, burst=2)},
    labels={"team": "a"},
)
def typed(  # type: ignore[no-untyped-def]  # as users write it
    text: str,
    *,
    number: float,
    kind: Kind,
    mode: Literal["a", "b"] = "a",
    names: list[str] | None = None,
    options: Options | None = None,
    author: Author = Author("Ada"),  # noqa: B008
    anything=None,  # noqa: ANN001
) -> Any:
    return merge([text, number, kind, mode, names], {"o": options, "a": author.name, "x": anything})


@workflow
def conditions(url: str, least: int = 3) -> Any:
    page = fetch(url)
    alarm = parse.when((page["size"] > least) & ~page["ok"])(page)
    news = scan.when("fetch.title | length > 3")(page)
    late = parse.when(True).when(page["a"] == None)(alarm)  # noqa: E711
    return {
        "alarm": alarm,
        "late": late["x"],
        "news": runnel.default(news, "none"),
        "page": page,
        "tidied": tidy_up(page.title),
    }


@workflow
def maps(urls: list[str]) -> Any:
    pages = fetch.map(urls)
    sizes = parse.map(pages, depth=2)
    few = parse.map(["a", pages[0]], 7)
    maybe = fetch.when("input.urls | length > 1")(urls[0])
    return merge([sizes, few], diamond.map(maybe.links))  # type: ignore[union-attr]  # a placeholder, not None


@workflow
def waits(url: str) -> Any:
    page = fetch(url)
    pause = runnel.sleep.after(page)(page["seconds"])
    answer = runnel.wait_for_signal.options(id="approval").after(pause)(
        "approve", timeout=60, on_timeout="complete"
    )
    picked = runnel.handler("data_processor")(operation="pick", data=page, fields=["title"])
    mapped = runnel.handler("output").map(page["links"], link=runnel.item())
    return [answer, picked, mapped]


@workflow
def texts(url: str) -> Any:
    page = fetch(url)
    return merge(
        runnel.text("{} of {where} {{{n}}}", page["title"], where=url, n=3), "{{ not a template }}"
    )


@workflow
def secrets(url: str) -> Any:
    token = runnel.secret("shop_token")
    return merge(
        fetch(runnel.text("{}?token={}", url, token)),
        runnel.handler("output")(password=runnel.default(runnel.secret("none"), "")),
    )


@workflow
def parent(url: str) -> Any:
    return merge(diamond(url), diamond.options(id="again")(url=url))


@workflow
def names(url: str) -> Any:
    results = [fetch(url), fetch(url), fetch.options(name="load")(url), input(url)]
    return merge(results, fetch.options(id="my-fetch")(url))


@workflow
def flagged(url: str, is_deep: bool = False) -> Any:  # noqa: FBT002
    return scan.when(is_deep)(fetch(url))


@workflow
def brackets(url: str) -> Any:
    """Brackets in plain texts are not templates, wherever they come from."""
    return merge(
        runnel.text("{{{}}}", url),
        [
            runnel.text("{{{{ fetch }}}}"),
            runnel.text("{}{}", "{", "{ fetch }}"),
            runnel.text("{{%{}", url),
        ],
    )


@workflow
def plain_questions(url: str) -> Any:
    """Tests only values that exist while it is traced: plain values, tasks, its own variables."""
    best: Any = None
    for path in ("a", "b"):
        best = fetch(path) if best is None else merge(best, fetch(path))
    mode: Any = None
    page = parse.when(url == "x")(best) if mode is None else best

    def chosen(url: str | None) -> Any:
        return fetch("c") if url is None else fetch(url)

    try:
        number: Any = int("none")
    except ValueError:
        number = len(merge.function("d"))
    return merge([page, chosen(None)], number if isinstance(number, int) else 1)


@dataclass
class Pair:
    left: Any
    right: Any


@workflow
def copies(url: str) -> Any:
    page = fetch(url)
    return merge(asdict(Pair(page, copy.copy(page))), copy.deepcopy([page["title"]]))


class Old:
    @dataclass
    class Size:
        width: int


class New:
    @dataclass
    class Size:
        height: int


@workflow
def of_one_name(old: Old.Size, new: New.Size) -> Any:
    return merge(old, new)
