"""What a run has found so far: kept as JSON after every job, and as tables for people."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from runnel.bench.figures import Figures

FigureValues = dict[str, list[float]]


@dataclass(slots=True, kw_only=True)
class BenchmarkResults:
    """`figures` are the values of each repetition, by job and figure; `failed` is why, by job."""

    machine: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    peers: dict[str, dict[str, str]] = field(default_factory=dict)
    figures: dict[str, FigureValues] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    is_complete: bool = False

    def add(self, job: str, figures: Figures) -> None:
        for name, value in figures.items():
            self.figures.setdefault(job, {}).setdefault(name, []).append(value)

    def compute_median(self, job: str, figure: str) -> float | None:
        values = self.figures.get(job, {}).get(figure)
        return median(values) if values else None

    def compute_floor_ratio(self, job: str) -> float | None:
        """Return the ratio of the medians: our rate by that of the floor."""
        done, floor = (
            self.compute_median(job, figure) for figure in ("executions_per_s", "floor_per_s")
        )
        return None if done is None or floor is None else done / floor

    def write(self, path: Path, targets: list[dict[str, Any]]) -> None:
        """All of it, or what was there before."""
        text = json.dumps({**asdict(self), "targets": targets}, indent=1)
        new = path.with_suffix(".new")
        new.write_text(text + "\n", encoding="utf-8")
        new.replace(path)
