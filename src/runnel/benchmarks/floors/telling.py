"""Word to the callers of a floor, who may have left: Ctrl-C ends them before it."""

import asyncio


def tell(waiting: asyncio.Future[None]) -> None:
    """Nothing, to one who has left."""
    if not waiting.done():
        waiting.set_result(None)
