"""The fixture that all page tests share: one process whose forks run the commands."""

import pytest

from tests.docs.page_commands import PageCommands


@pytest.fixture(scope="session")
def program_forks() -> PageCommands:
    return PageCommands()
