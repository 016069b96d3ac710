"""The results as Markdown."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bench.comparison import times_best_peer
from bench.peer_jobs import PREFIX
from bench.results import Results
from runnel.bench.report import label, number

RATIO_OF = "executions_per_s"


def markdown(results: Results, targets: Sequence[dict[str, Any]]) -> str:
    parts = [_head(results), "## Targets\n", _table(_TARGETS, _target_rows(targets))]
    figures = _table(_FIGURES, _figure_rows(results))
    parts += ["## Figures\n", figures]
    if results.peers:
        parts += ["## Peers\n", _table(_PEERS, _peer_rows(results))]
    if results.failed:
        rows = [(job, why.replace("|", "/")) for job, why in results.failed.items()]
        parts += ["## Not measured, or not each time\n", _table(("job", "why"), rows)]
    return "\n".join(parts)


_TARGETS = ("target", "configuration", "wanted", "found", "")
_FIGURES = (
    *("job", "figure", "median", "least", "most", "of the floor"),
    "times the best durable peer",
)
_FOR = "settings for "
_PEERS = ("peer", "versions", "durability", "joins", "layout", "settings")


def _head(results: Results) -> str:
    lines = [
        f"{name}: {'; '.join(f'{key} {value}' for key, value in about.items())}."
        for name, about in (("Settings", results.settings), ("Machine", results.machine))
    ]
    if not results.is_complete:
        lines.append("**Not complete: the run goes on, or was ended.**")
    return "\n\n".join(["# Results", *lines, "Method: [README.md](README.md).\n"])


def _target_rows(targets: Iterable[dict[str, Any]]) -> Iterator[Sequence[str]]:
    for each in targets:
        found = "" if each["found"] is None else number(each["found"])
        verdict = each["verdict"]
        shown = f"**{verdict}**" if verdict == "missed" else verdict
        yield each["target"], each["configuration"], each["wanted"], found, shown


def _figure_rows(results: Results) -> Iterator[Sequence[str]]:
    for job, figures in results.figures.items():
        for name, values in figures.items():
            ratio = results.ratio(job) if name == RATIO_OF else None
            times = times_best_peer(results, job, name)
            yield (
                job,
                label(name),
                number(results.median(job, name) or 0.0),
                number(min(values)),
                number(max(values)),
                "" if ratio is None else f"{ratio:.2f}",
                "" if times is None else number(times),
            )


def _peer_rows(results: Results) -> Iterator[Sequence[str]]:
    """Only of those that were measured."""
    measured = {job.split()[-1] for job in results.figures if PREFIX in job.split()}
    for peer, about in results.peers.items():
        if peer in measured:
            shown = {**about, "settings": _settings(about)}
            yield (peer, *(shown.get(name, "").replace("|", "/") for name in _PEERS[1:]))


def _settings(about: dict[str, str]) -> str:
    """With what is different for some of the workloads, and how many executions each was."""
    others = [f"{name.removeprefix(_FOR)}: {text}" for name, text in about.items() if _FOR in name]
    counts = [f"executions: {about['counts']}"] if "counts" in about else []
    return "; ".join([about.get("settings", ""), *others, *counts])


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(each) + " |" for each in (heads, *rows)]
    return "\n".join([lines[0], "|---" * len(heads) + "|", *lines[1:]]) + "\n"
