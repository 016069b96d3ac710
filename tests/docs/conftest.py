"""What all pages share: one process whose forks run their commands."""

import pytest

from tests.docs.page_commands import PageCommands


@pytest.fixture(scope="session")
def program_forks() -> PageCommands:
    return PageCommands()
