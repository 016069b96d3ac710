"""Fails when the last test run covered too few branches of the core or of the engine."""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from coverage import Coverage

# Per cent. These limits may only rise.
BRANCHES_MIN = 95.0
PACKAGES = ("core", "engine")


def main() -> None:
    """Exits with a message if a package is below its limit."""
    with TemporaryDirectory() as folder:
        taken = {package: measure_branch_coverage(package, Path(folder)) for package in PACKAGES}
    summary = ", ".join(f"{package} {share:.1f} %" for package, share in taken.items())
    if min(taken.values()) < BRANCHES_MIN:
        sys.exit(f"expected tests for at least {BRANCHES_MIN:g} % of the branches, got: {summary}")
    sys.stdout.write(f"branches: {summary}\n")


def measure_branch_coverage(package: str, folder: Path) -> float:
    """Returns the covered branches in per cent. Lines do not count: they are easier to reach."""
    report = folder / f"{package}.json"
    measured = Coverage()
    measured.load()
    measured.json_report(outfile=str(report), include=[f"src/runnel/{package}/*"])
    totals = json.loads(report.read_text(encoding="utf-8"))["totals"]
    return float(100 * totals["covered_branches"] / totals["num_branches"])


if __name__ == "__main__":
    main()
