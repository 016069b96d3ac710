"""The tables of the page on performance have the figures of the last benchmark."""

import pytest

from tests.docs.benchmark_figures import ROOT, check_cells

PAGE = (ROOT / "docs/explanation/performance.md").read_text(encoding="utf-8")
CONFIGURATIONS = {
    "SQLite, 4 slots": "sqlite x4",
    "SQLite with durability `power`, 4 slots": "sqlite-power x4",
    "servers, one worker of 4 slots": "servers 1w x4",
    "servers, one worker of 64 slots": "servers 1w x64",
}
CALLS = {
    "engine that stays open, SQLite | 1": "call engine c1",
    "engine that stays open, SQLite | 64": "call engine c64",
    "`runnel.run` with nothing open, SQLite | 1": "call run c1",
    **{f"`Client.run` over HTTP | {n}": f"call http c{n}" for n in (1, 8, 32, 128)},
}


def find_cells(first_cells: str) -> list[str]:
    """Returns the cells of the row that begins with `first_cells`, without these."""
    beginning = f"| {first_cells} |"
    (row,) = [line for line in PAGE.splitlines() if line.startswith(beginning)]
    return row.removeprefix(beginning).strip("|").split("|")


@pytest.mark.parametrize("functions", ["sync", "async"])
@pytest.mark.parametrize(("configuration", "job"), CONFIGURATIONS.items())
def test_the_figures_of_functions_are_those_of_the_last_benchmark(
    functions: str, configuration: str, job: str
) -> None:
    figures = [
        f"{workload} {functions} {job}: {figure}"
        for workload, figure in (
            ("diamond", "executions per second"),
            ("chain", "edge, ms, p50"),
            ("fan", "fan 1000, seconds"),
        )
    ]

    check_cells(find_cells(f"{functions} | {configuration}"), figures)


@pytest.mark.parametrize(("call", "job"), CALLS.items())
def test_the_figures_of_calls_are_those_of_the_last_benchmark(call: str, job: str) -> None:
    figures = ("calls per second", "call, ms, p50", "call, ms, p99")

    check_cells(find_cells(call), [f"{job}: {figure}" for figure in figures])
