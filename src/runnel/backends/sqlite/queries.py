"""The statements of this backend by name."""

from pathlib import Path

from runnel.backends.statements import named_statements, plain_statements


def schema() -> list[str]:
    """The newest one, as a new file gets it."""
    return plain_statements(Path(__file__).with_name("schema.sql"))


def upgrade_to(version: int) -> list[str]:
    """What brings a file of the version before to this one."""
    return plain_statements(Path(__file__).with_name(f"upgrade_{version}.sql"))


SQL = named_statements(Path(__file__).with_name("queries.sql"))
