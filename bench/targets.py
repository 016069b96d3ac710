"""What is to be reached, and whether it was."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from bench.peer_jobs import PREFIX
from bench.results import Results

Found = Callable[[Results], float | None]

EMBEDDED = ("sqlite x4", "sqlite x64", "sqlite-power x4", "sqlite-power x64")
SERVERS = ("servers 1w x4", "servers 1w x64", "servers 2w x4", "servers 2w x64")
RATE = "executions_per_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    about: str
    configuration: str
    sign: Literal["≥", "≤"]
    bound: float
    found: Found

    def judged(self, results: Results) -> dict[str, Any]:
        value = self.found(results)
        return {
            "target": self.about,
            "configuration": self.configuration,
            "wanted": f"{self.sign} {self.bound:g}",
            "found": value,
            "verdict": self._verdict(value),
        }

    def _verdict(self, value: float | None) -> str:
        if value is None:
            return "not measured"
        is_reached = value >= self.bound if self.sign == "≥" else value <= self.bound
        return "reached" if is_reached else "missed"


def judged(results: Results) -> list[dict[str, Any]]:
    return [target.judged(results) for target in targets()]


def targets() -> Iterator[Target]:
    yield from _rates()
    yield from _edges()
    yield from _fans_and_maps()
    yield _most("W4 cold start, s", "cli", 0.6, "start cli", "cold_start_s")
    yield _most(
        "W5 10,000 waiting, MB above idle",
        "sqlite x4",
        100,
        "waiting sqlite x4",
        "waiting_mb_engine",
    )
    for part in ("orchestrator", "worker"):
        yield _most(
            f"W5 10,000 waiting, MB above idle, {part}",
            "servers 1w x64",
            150,
            "waiting servers 1w x64",
            f"waiting_mb_{part}",
        )


def _rates() -> Iterator[Target]:
    for each in EMBEDDED:
        # As it comes, DBOS is as safe as our `power`; with WAL, as our default.
        is_as_safe = "power" in each
        about = "as it comes" if is_as_safe else "as it comes, which survives a power cut"
        yield _times_peer(f"W1 times DBOS on SQLite, {about}", each, 100, "dbos-sqlite")
        if not is_as_safe:
            about = "with WAL, as safe as this"
            yield _times_peer(f"W1 times DBOS on SQLite {about}", each, 100, "dbos-sqlite-wal")
        yield _of_floor(each, 0.35)
    for each in SERVERS:
        yield _times_peer("W1 times Celery", each, 25, "celery")
        yield _of_floor(each, 0.45)


def _edges() -> Iterator[Target]:
    for figure, about in (
        ("edge", "W2 per edge, from outside"),
        ("hop", "W2 per edge, by commits"),
    ):
        bounds = {"sqlite x4": (0.5, 3), "servers 1w x4": (1.2, 5), "servers 1w x64": (1.2, 5)}
        for configuration, (p50, p99) in bounds.items():
            job = f"chain {configuration}"
            yield _most(f"{about}, p50, ms", configuration, p50, job, f"{figure}_ms_p50")
            yield _most(f"{about}, p99, ms", configuration, p99, job, f"{figure}_ms_p99")


def _fans_and_maps() -> Iterator[Target]:
    for configuration, bound in (
        ("sqlite x4", 0.15),
        ("servers 1w x4", 0.4),
        ("servers 1w x64", 0.4),
    ):
        job = f"fan {configuration}"
        yield _most("W3 1→1,000→1, s", configuration, bound, job, "fan_1000_s")
    for configuration in ("sqlite x4", "servers 1w x64"):
        about = "W3 cost of an item of 100,000, times that of 1,000"
        yield _most(about, configuration, 1.3, f"map {configuration}", "map_cost_ratio")


def _most(about: str, configuration: str, bound: float, job: str, figure: str) -> Target:
    def found(results: Results) -> float | None:
        return results.median(job, figure)

    return Target(about=about, configuration=configuration, sign="≤", bound=bound, found=found)


def _of_floor(configuration: str, bound: float) -> Target:
    def found(results: Results) -> float | None:
        return results.ratio(f"diamond {configuration}")

    return Target(
        about="W1 of the floor", configuration=configuration, sign="≥", bound=bound, found=found
    )


def _times_peer(about: str, configuration: str, bound: float, peer: str) -> Target:
    def found(results: Results) -> float | None:
        ours = results.median(f"diamond {configuration}", RATE)
        theirs = results.median(f"diamond {PREFIX} {peer}", RATE)
        return None if ours is None or theirs is None else ours / theirs

    return Target(about=about, configuration=configuration, sign="≥", bound=bound, found=found)
