"""Workflow documents that come in over the network: read, and their children by name found."""

from collections.abc import Iterator

from runnel.api.bodies import document
from runnel.api.site import Site
from runnel.authoring.document import read_document
from runnel.core.checks.values import NAME
from runnel.core.json_types import Json
from runnel.core.workflow import CHILD_WORKFLOW, Workflow
from runnel.errors import NotFoundError


async def read_workflow(site: Site, body: bytes, media_type: str) -> Workflow:
    """Raises MalformedBodyError, InvalidWorkflowError with all problems of its shape.

    It can't name files; child workflows that it names are those that are stored, as they are now.
    """
    data = document(body, media_type)
    children: dict[str, Workflow] = {}
    for name in _names(data):
        try:
            children[name] = (await site.client.library.find(name)).graph.workflow
        except NotFoundError:
            continue  # the reader says where it is named
    return read_document(data, resolve=children.get, retry=site.settings.retry)


def _names(data: Json) -> Iterator[str]:
    """Of the child workflows that a document, or one that is written down in it, names."""
    nodes = data.get("nodes") if isinstance(data, dict) else None
    listed = list(nodes.values()) if isinstance(nodes, dict) else nodes
    for node in listed if isinstance(listed, list) else []:
        config = node.get("config") if isinstance(node, dict) else None
        if isinstance(config, dict) and node.get("handler") == CHILD_WORKFLOW:
            if NAME.fits(config.get("workflow")):
                yield config["workflow"]
            yield from _names(config.get("definition"))
