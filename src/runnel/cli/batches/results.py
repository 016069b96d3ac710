"""What is left of a batch: a line of JSON for each document, and the sum of them."""

import sys
from pathlib import Path
from typing import TextIO

from runnel.cli.batches.output import OutputFile
from runnel.cli.batches.tally import Outcome, Tally
from runnel.cli.hints import Hints
from runnel.cli.words import compact, count, duration
from runnel.client import Client
from runnel.core.json_types import Json

FAILURES_SHOWN = 10


class Results:
    """Written anew by each run, as the documents end; without a path, nothing is.

    What an earlier run has brought to an end is written again: its results are in the store.
    """

    def __init__(self, path: Path | None, client: Client) -> None:
        self._client = client
        self._file = None if path is None else OutputFile(path)

    async def add(self, outcome: Outcome) -> None:
        if self._file is not None:
            self._file.write(compact(await self._record(outcome)))

    def end(self, *, is_complete: bool) -> Path | None:
        """Where the lines of an unfinished batch are; None of a complete one, or without a path."""
        if self._file is None:
            return None
        if not is_complete:
            return self._file.leave()
        self._file.keep()
        return None

    def drop(self) -> None:
        """After an error: an earlier file stays as it was. After an end it changes nothing."""
        if self._file is not None:
            self._file.drop()

    async def _record(self, outcome: Outcome) -> dict[str, Json]:
        header = outcome.header
        view = await self._client.get(header.execution_id) if outcome.is_completed else None
        return {
            "line": outcome.document.line,
            "key": outcome.document.key,
            "execution_id": header.execution_id,
            "status": header.state.value,
            "took_s": round(outcome.took_s, 3),
            "output": None if view is None else view.output,
            "error": header.error,
        }


def print_summary(name: str, tally: Tally, now: float, out: TextIO) -> None:
    took = duration(now - tally.began_at)
    counts = [
        f"{tally.states[state]:,} {state.lower()}"
        for state in ("COMPLETED", "FAILED", "CANCELLED")
        if tally.states[state]
    ]
    left = tally.total - tally.done
    counts += [f"{left:,} unfinished"] if left else []
    print(f"{name}: {count(tally.total, 'document')}: {', '.join(counts)}", file=out)
    if tally.earlier:
        print(f"  {tally.earlier:,} were done before", file=out)
    p50, p95 = tally.quantile_s(0.5), tally.quantile_s(0.95)
    if p50 is not None and p95 is not None:
        pace = f"{count(tally.done_now, 'document')} in {took}, {tally.per_hour(now):,.0f} per hour"
        print(f"  {pace}; p50 {duration(p50)}, p95 {duration(p95)}", file=out)


def tell_failures(tally: Tally, hints: Hints) -> None:
    """The first ones, with what to look at."""
    if not tally.failures:
        return
    shown = sorted(tally.failures, key=lambda each: each.document.line)[:FAILURES_SHOWN]
    for each in shown:
        error = " ".join((each.header.error or each.header.state.lower()).split())
        _say(f"line {each.document.line} ({each.header.execution_id}): {error}")
    rest = len(tally.failures) - len(shown)
    if rest:
        _say(f"and {rest:,} more; --output writes all of them to a file")
    see = hints.show(shown[0].header.execution_id)
    _say(f"see: {see}; run what failed again: the same command with --retry-failed")


def tell_how_to_go_on(left: Path | None) -> None:
    where = "" if left is None else f"; results so far: {left}"
    _say(f"go on with the same command{where}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
