"""Questions to PostgreSQL itself, beside the deployment that is measured."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from runnel.backends.postgres.database import DRIVER_ERRORS
from runnel.errors import StoreError

CALL_S = 30.0


@asynccontextmanager
async def asking(postgres_url: str) -> AsyncIterator[Any]:
    """A connection of asyncpg; whatever goes wrong with it leaves as StoreError."""
    try:
        connection = await asyncpg.connect(postgres_url, timeout=CALL_S)
        try:
            yield connection
        finally:
            await connection.close(timeout=CALL_S)
    except DRIVER_ERRORS as error:
        raise StoreError(f"PostgreSQL: {str(error) or 'no answer in time'}") from error
