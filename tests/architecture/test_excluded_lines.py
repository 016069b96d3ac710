"""Coverage measures the whole code: what it is told to leave out is counted."""

import re

from coverage import Coverage

from tests.architecture.test_tidy import ROOT, SOURCE, files_below

# May only go down.
EXCLUDED_LINES_MAX = 20


def test_few_lines_are_kept_from_being_measured() -> None:
    measured = Coverage(data_file=None, config_file=str(ROOT / "pyproject.toml"))

    found = {
        name: measured.analysis2(str(SOURCE / name))[2]
        for name in files_with(measured.get_exclude_list("exclude"))
    }

    assert sum(map(len, found.values())) <= EXCLUDED_LINES_MAX, found


def test_no_branch_is_kept_from_being_measured() -> None:
    measured = Coverage(data_file=None, config_file=str(ROOT / "pyproject.toml"))

    assert files_with(measured.get_exclude_list("partial")) == []


def files_with(patterns: list[str]) -> list[str]:
    """Looked for first, because analysing a file takes coverage 20 ms."""
    pattern = re.compile("|".join(patterns), re.MULTILINE)
    texts = {name: (SOURCE / name).read_text(encoding="utf-8") for name in files_below(SOURCE)}
    return [name for name, text in texts.items() if pattern.search(text)]
