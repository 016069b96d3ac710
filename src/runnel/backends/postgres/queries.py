"""The statements of this backend by name."""

from pathlib import Path

from runnel.backends.statements import named_statements

SQL = named_statements(Path(__file__).with_name("queries.sql"))
