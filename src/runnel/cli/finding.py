"""Executions by what people type: an id, the beginning of one, or @last."""

from runnel.core.ids import ExecutionId
from runnel.errors import NotFoundError
from runnel.listing import newest_headers
from runnel.ports.archive import ExecutionFilter
from runnel.runtime.look import Look

LAST = "@last"


async def find(look: Look, text: str) -> ExecutionId:
    """Raises NotFoundError for one that does not exist or is not the only one."""
    wanted = text.strip()
    if wanted == LAST:
        newest = await newest_headers(look.backend.archive, ExecutionFilter(limit=1))
        if not newest:
            raise NotFoundError("execution", LAST, hint="nothing has been run yet")
        return newest[0].execution_id
    if not wanted:
        raise NotFoundError("execution", text, hint="give its id, the beginning of it, or @last")
    return await look.client.find(wanted)
