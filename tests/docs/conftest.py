"""What all pages share: one process whose forks run their commands."""

from collections.abc import Iterator

import pytest

from tests.docs.forks import Forks, forks


@pytest.fixture(scope="session")
def program_forks() -> Iterator[Forks]:
    with forks() as opened:
        yield opened
