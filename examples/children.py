"""Child workflows: each region is a separate execution with its own history.

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
def count_sales(shop: str) -> int:
    return 2 * len(shop)


@task
def list_shops(region: str) -> list[str]:
    return [f"{region}-{number}" for number in (1, 2)]


@task
def sum_sales(region: str, sales: list[int]) -> dict[str, Any]:
    return {"region": region, "sales": sum(sales)}


@task
def build_table(rows: list[dict[str, Any]]) -> dict[str, int]:
    return {row["region"]: row["sales"] for row in rows}


@workflow
def region(name: str) -> Any:
    return sum_sales(name, count_sales.map(list_shops(name)))


@workflow
def country(regions: list[str]) -> Any:
    return build_table(region.map(regions))
