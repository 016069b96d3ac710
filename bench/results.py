"""The results of a run so far. They are written as JSON after every job."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from runnel.bench.figures import Figures

FigureValues = dict[str, list[float]]


@dataclass(slots=True, kw_only=True)
class BenchmarkResults:
    """The values of each repetition by job and figure, and the reasons of failed jobs."""

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
        """Returns the median engine-only rate divided by the median rate of the floor."""
        return self.compute_ratio(job, "engine_only_per_s", "floor_per_s")

    def compute_ratio(self, job: str, figure: str, other: str) -> float | None:
        """Returns the ratio of the medians of two figures of a job."""
        value, base = self.compute_median(job, figure), self.compute_median(job, other)
        return None if value is None or base is None else value / base

    def write(self, path: Path, targets: list[dict[str, Any]]) -> None:
        """Writes the file atomically."""
        text = json.dumps({**asdict(self), "targets": targets}, indent=1)
        new_path = path.with_suffix(".new")
        new_path.write_text(text + "\n", encoding="utf-8")
        new_path.replace(path)
