"""Workflows inside workflows: each region is an execution of its own, with a history of its own.

$ runnel run examples/children.py:country --input regions:='["north", "south"]'
{
  "north": 28,
  "south": 28
}
$ runnel list --all
ID …  WORKFLOW  STATUS       CREATED              TOOK
…
….region.0.1  region    ✓ COMPLETED  …
…
…             country   ✓ COMPLETED  …
"""

from typing import Any

from runnel import task, workflow


@task
def sales_of(shop: str) -> int:
    return 2 * len(shop)


@task
def shops_in(region: str) -> list[str]:
    return [f"{region}-{number}" for number in (1, 2)]


@task
def add(region: str, sales: list[int]) -> dict[str, Any]:
    return {"region": region, "sales": sum(sales)}


@task
def table(rows: list[dict[str, Any]]) -> dict[str, int]:
    return {row["region"]: row["sales"] for row in rows}


@workflow
def region(name: str) -> Any:
    return add(name, sales_of.map(shops_in(name)))


@workflow
def country(regions: list[str]) -> Any:
    return table(region.map(regions))
