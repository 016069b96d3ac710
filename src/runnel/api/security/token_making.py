"""What is secret of a token: chance that nobody can foresee."""

import secrets

from runnel.api.security.scopes import Scope
from runnel.api.security.tokens import NewToken

_ID_BYTES, _SECRET_BYTES = 4, 32


def new_token(
    name: str,
    scopes: tuple[Scope, ...],
    *,
    expires_at: float | None = None,
    per_minute: int | None = None,
) -> NewToken:
    return NewToken(
        id=secrets.token_hex(_ID_BYTES),
        secret=secrets.token_hex(_SECRET_BYTES),
        name=name,
        scopes=scopes,
        expires_at=expires_at,
        per_minute=per_minute,
    )
