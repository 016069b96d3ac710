"""Formats the results as Markdown."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bench.peer_jobs import PEER_PREFIX
from bench.results import BenchmarkResults
from runnel.bench.report import format_label, format_number

RATIO_FIGURE = "engine_only_per_s"
NOT_DURABLE = "NOT durable"
HIGHER_IS_BETTER = frozenset({"executions_per_s"})
LOWER_IS_BETTER = frozenset({"edge_ms_p50", "edge_ms_p99", "fan_1000_s"})
WORKLOAD_NOTE = """\
The nodes of `sync` and `async` jobs are decorated functions. Like the nodes of peers, they take and
return integers, and the client fetches and checks the last result. A figure whose name begins with
`engine only` is of nodes that call `noop`, which has no arguments and no result. The jobs `graph`,
`map`, `waiting`, `load`, `backlog` and `archive-down` are engine only as well. Only an engine-only
rate is compared with its floor, and only functions are compared with peers.
"""


def format_markdown(results: BenchmarkResults, targets: Sequence[dict[str, Any]]) -> str:
    parts = [
        _format_head(results),
        WORKLOAD_NOTE,
        "## Targets\n",
        _format_table(_TARGET_COLUMNS, _format_target_rows(targets)),
    ]
    figures = _format_table(_FIGURE_COLUMNS, _format_figure_rows(results))
    parts += ["## Figures\n", figures]
    if results.peers:
        parts += ["## Peers\n", _format_table(_PEER_COLUMNS, _format_peer_rows(results))]
    if results.failed:
        rows = [(job, reason.replace("|", "/")) for job, reason in results.failed.items()]
        parts += ["## Failed jobs\n", _format_table(("job", "reason"), rows)]
    return "\n".join(parts)


_TARGET_COLUMNS = ("target", "configuration", "required", "measured", "")
_FIGURE_COLUMNS = (
    *("job", "figure", "median", "minimum", "maximum", "ratio to the floor"),
    "ratio to the best durable peer",
)
_WORKLOAD_SETTINGS_PREFIX = "settings for "
_PEER_COLUMNS = ("peer", "versions", "durability", "joins", "layout", "settings")


def _format_head(results: BenchmarkResults) -> str:
    lines = [
        f"{name}: {'; '.join(f'{key} {value}' for key, value in fields.items())}."
        for name, fields in (("Settings", results.settings), ("Machine", results.machine))
    ]
    if not results.is_complete:
        lines.append("**Incomplete: the run is in progress or was interrupted.**")
    return "\n\n".join(["# Results", *lines, "Method: [README.md](README.md).\n"])


def _format_target_rows(targets: Iterable[dict[str, Any]]) -> Iterator[Sequence[str]]:
    for target in targets:
        value = "" if target["found"] is None else format_number(target["found"])
        verdict = target["verdict"]
        shown = f"**{verdict}**" if verdict == "missed" else verdict
        yield target["target"], target["configuration"], target["wanted"], value, shown


def _format_figure_rows(results: BenchmarkResults) -> Iterator[Sequence[str]]:
    for job, figures in results.figures.items():
        for name, values in figures.items():
            ratio = results.compute_floor_ratio(job) if name == RATIO_FIGURE else None
            peer_ratio = compare_with_best_peer(results, job, name)
            yield (
                job,
                format_label(name),
                format_number(results.compute_median(job, name) or 0.0),
                format_number(min(values)),
                format_number(max(values)),
                "" if ratio is None else f"{ratio:.2f}",
                "" if peer_ratio is None else format_number(peer_ratio),
            )


def compare_with_best_peer(results: BenchmarkResults, job: str, figure: str) -> float | None:
    """Returns the ratio to the best peer whose joins survive a crash; above 1 is better.

    Returns None for a job of a peer, or if no peer has the figure.
    """
    workload, *configuration = job.split()
    value = results.compute_median(job, figure)
    if value is None or PEER_PREFIX in configuration:
        return None
    peer_values = [
        peer_value
        for peer, description in results.peers.items()
        if not description.get("joins", "").startswith(NOT_DURABLE)
        and (peer_value := results.compute_median(f"{workload} {PEER_PREFIX} {peer}", figure))
        is not None
    ]
    if not peer_values:
        return None
    if figure in HIGHER_IS_BETTER:
        return value / max(peer_values)
    return min(peer_values) / value if figure in LOWER_IS_BETTER else None


def _format_peer_rows(results: BenchmarkResults) -> Iterator[Sequence[str]]:
    """Yields a row for each measured peer."""
    measured = {job.split()[-1] for job in results.figures if PEER_PREFIX in job.split()}
    for peer, description in results.peers.items():
        if peer in measured:
            fields = {**description, "settings": _format_peer_settings(description)}
            yield (peer, *(fields.get(name, "").replace("|", "/") for name in _PEER_COLUMNS[1:]))


def _format_peer_settings(description: dict[str, str]) -> str:
    """Formats the settings, those of single workloads, and the numbers of executions."""
    workload_settings = [
        f"{name.removeprefix(_WORKLOAD_SETTINGS_PREFIX)}: {text}"
        for name, text in description.items()
        if _WORKLOAD_SETTINGS_PREFIX in name
    ]
    counts = [f"executions: {description['counts']}"] if "counts" in description else []
    return "; ".join([description.get("settings", ""), *workload_settings, *counts])


def _format_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (columns, *rows)]
    return "\n".join([lines[0], "|---" * len(columns) + "|", *lines[1:]]) + "\n"
