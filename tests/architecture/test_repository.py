"""The repository works for whoever clones it: nothing in it is tied to one machine."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
REFERENCE_LINES_MAX = 80

# In two halves, so that this file does not name them.
TIED = tuple(
    first + second
    for first, second in [
        ("pypi", ".org"),
        ("python", "hosted"),
        ("index", "-url"),
        ("find", "-links"),
        ("/wo", "rk/"),
        ("/ro", "ot/"),
    ]
)


def files_of_the_repository() -> list[Path]:
    """What git tracks or would add; names deleted from the working tree are left out."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    paths = sorted(ROOT / name for name in listed.stdout.split("\0") if name)
    return [path for path in paths if path.is_file()]


def test_no_file_names_a_package_host_or_a_folder_of_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in files_of_the_repository()
        for word in TIED
        if word in path.read_text(encoding="utf-8", errors="replace")
    ]

    assert found == []


def test_the_reference_is_short_enough_to_be_believed() -> None:
    text = (ROOT / "simulation/reference.py").read_text(encoding="utf-8")

    assert len(text.splitlines()) <= REFERENCE_LINES_MAX
