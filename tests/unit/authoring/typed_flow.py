"""The types of decorated functions: mypy checks this file together with all others.

An ignore that is not needed is an error, so each one proves that mypy finds the mistake.
"""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import NamedTuple, TypedDict, assert_type

import runnel
from runnel import task, workflow


class Page(TypedDict):
    title: str
    links: list[str]


@task(retries=3, timeout=30)
async def fetch(url: str) -> Page:
    return {"title": url, "links": [url]}


@task
def count(page: Page, *, least: int = 0) -> int:
    return max(len(page["links"]), least)


@workflow
def report(url: str, year: int = 2026) -> int:
    page = fetch(url)
    assert_type(page, Page)
    assert_type(page["title"], str)
    assert_type(fetch.map(page["links"]), list[Page])
    assert_type(fetch.options(retries=1).after(page)(url), Page)
    assert_type(fetch.when(page["title"] != "").after(page)(url), Page | None)
    return count(page, least=year)


@workflow(name="both", on_failure="continue")
def both(url: str) -> list[int]:
    assert_type(report(url), int)
    assert_type(report.when(url != "")(url), int | None)
    return report.map([url])


@dataclass
class Invoice:
    day: date
    total: Decimal
    pages: list[Page]


class Period(NamedTuple):
    start: date
    end: date


@task
def load(period: Period, factor: Decimal = Decimal(1)) -> Invoice:
    return Invoice(period.start, factor, [])


@task
def pay(total: Decimal, day: date, pages: list[Page]) -> set[int]:
    return {len(pages)}


@workflow
def billing(period: Period) -> tuple[Invoice, set[int]]:
    invoice = load(period)
    assert_type(invoice.total, Decimal)
    other = load(Period(period.start, date(2026, 1, 1)), Decimal("1.5"))
    late = load.when(invoice.day < period.end)(period)
    assert_type(late, Invoice | None)
    assert_type(load.map([period]), list[Invoice])
    return runnel.default(late, other), pay(other.total, invoice.day, invoice.pages)


async def typed_runs() -> None:
    period = Period(date(2026, 1, 1), date(2026, 2, 1))
    assert_type(await runnel.run(billing, period), tuple[Invoice, set[int]])
    assert_type(billing.run(period), tuple[Invoice, set[int]])
    assert_type(await runnel.run(report, "https://example.org"), int)
    assert_type(await runnel.run(both, url="https://example.org"), list[int])
    assert_type(await runnel.submit(report, "https://example.org"), str)
    shown: list[object] = [await runnel.run(report, "https://example.org")]
    async with runnel.Engine() as engine:
        assert_type(await engine.run(report, "https://example.org"), int)
        shown.append(await engine.run(report, "https://example.org"))
    assert_type(await fetch.function("x"), Page)
    assert_type(count.function({"title": "", "links": []}), int)


def wrong() -> None:
    fetch(7)  # type: ignore[arg-type]
    fetch()  # type: ignore[call-arg]
    count(fetch("x"), most=3)  # type: ignore[call-arg]
    report.run(7)  # type: ignore[arg-type]
    report.run("x", month=3)  # type: ignore[call-arg]
    fetch.options(retry=3)  # type: ignore[call-arg]
    task(retries="x")  # type: ignore[call-overload]
    pay(1.5, "2026-01-01", [])  # type: ignore[arg-type]
