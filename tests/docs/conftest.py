"""What all pages share: one process whose forks run their commands."""

import pytest

from tests.docs.forks import Forks


@pytest.fixture(scope="session")
def program_forks() -> Forks:
    return Forks()
