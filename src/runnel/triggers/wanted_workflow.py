"""The workflow that somebody names for a trigger: found, or refused with the one that was meant."""

from runnel.core.checks.wording import did_you_mean
from runnel.core.workflow import Workflow
from runnel.errors import NotFoundError
from runnel.library import Library

COMPARED = 1_000


async def wanted_workflow(library: Library, name: str, version: int | None) -> Workflow:
    """The newest version without one; raises NotFoundError."""
    try:
        return (await library.find(name, version)).graph.workflow
    except NotFoundError as error:
        if version is not None:
            hint = f"'runnel workflows {error.name}' shows its versions"
        else:
            known = [each.name for each in await library.list(limit=COMPARED)]
            close = did_you_mean(name, known).strip(" ()")
            hint = close or "'runnel workflows' shows those that exist"
        raise NotFoundError(error.kind, error.name, hint=hint) from error
