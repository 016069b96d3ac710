"""Coverage measures nearly all code: the number of excluded lines is limited."""

import re

from coverage import Coverage

from tests.architecture.test_tidy import ROOT, SOURCE, files_below

# May only go down.
EXCLUDED_LINES_MAX = 20


def test_few_lines_are_excluded_from_coverage() -> None:
    measured = Coverage(data_file=None, config_file=str(ROOT / "pyproject.toml"))

    excluded_lines = {
        name: measured.analysis2(str(SOURCE / name))[2]
        for name in files_with(measured.get_exclude_list("exclude"))
    }

    assert sum(map(len, excluded_lines.values())) <= EXCLUDED_LINES_MAX, excluded_lines


def test_no_branch_is_excluded_from_coverage() -> None:
    measured = Coverage(data_file=None, config_file=str(ROOT / "pyproject.toml"))

    assert files_with(measured.get_exclude_list("partial")) == []


def files_with(patterns: list[str]) -> list[str]:
    """Returns the files that match. A search comes first, because coverage needs 20 ms per file."""
    pattern = re.compile("|".join(patterns), re.MULTILINE)
    texts = {name: (SOURCE / name).read_text(encoding="utf-8") for name in files_below(SOURCE)}
    return [name for name, text in texts.items() if pattern.search(text)]
