"""The repository works on every machine: no file is tied to one of them."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
REFERENCE_LINES_MAX = 80

# In two halves, so that this file does not contain them.
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
    """Returns existing files that git tracks or would add."""
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
    matches = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in files_of_the_repository()
        for word in TIED
        if word in path.read_text(encoding="utf-8", errors="replace")
    ]

    assert matches == []


def test_the_reference_is_short_enough_to_review() -> None:
    text = (ROOT / "simulation/reference.py").read_text(encoding="utf-8")

    assert len(text.splitlines()) <= REFERENCE_LINES_MAX
