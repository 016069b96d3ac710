"""Waits until the archive has all that was run: nobody else's measurement is to pay for it."""

from collections.abc import Collection

from runnel.backends.postgres.migrations import quoted
from runnel.benchmarks.asking import asking
from runnel.core.states import EXECUTION_FINAL
from runnel.errors import StoreError
from runnel.ports.clock import Clock

LOOK_EVERY_S = 0.05
WITHIN_S = 120.0


async def until_archived(postgres_url: str, schemas: Collection[str], clock: Clock) -> None:
    """All executions of these schemas have ended, as the archive has it.

    It is far behind when the last of many has ended: of 2,000 diamonds, 600 to 2,000 were not there
    yet, and it took 0.8 to 1.1 s to bring them. Raises StoreError if that takes too long.
    """
    final = [state.value for state in EXECUTION_FINAL]
    end = clock.monotonic() + WITHIN_S
    async with asking(postgres_url) as connection:
        for schema in schemas:
            question = f"SELECT count(*) FROM {quoted(schema)}.executions WHERE state <> ALL ($1)"  # noqa: S608  # quoted
            while left := await connection.fetchval(question, final):
                if clock.monotonic() > end:
                    problem = f"{left} executions were not archived within {WITHIN_S:g} s"
                    raise StoreError(f"PostgreSQL: {problem}")
                await clock.sleep(LOOK_EVERY_S)
