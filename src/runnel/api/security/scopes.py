"""What a token allows: each scope includes those before it."""

from enum import StrEnum

from runnel.errors import MissingScopeError


class Scope(StrEnum):
    READ = "read"
    RUN = "run"
    OPERATE = "operate"
    ADMIN = "admin"


_ORDER = list(Scope)


def check_scope(needed: Scope, held: tuple[Scope, ...]) -> None:
    """Raises MissingScopeError; somebody who may operate may also run and read."""
    if not any(_ORDER.index(each) >= _ORDER.index(needed) for each in held):
        raise MissingScopeError(needed, held)
