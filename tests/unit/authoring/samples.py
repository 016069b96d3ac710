"""Helpers that build the YAML of a workflow for tests."""

from textwrap import indent
from typing import NamedTuple


class Case(NamedTuple):
    """A document, and every problem that must be reported."""

    text: str
    problems: tuple[str, ...]


def case(text: str, *problems: str) -> Case:
    return Case(text, problems)


def workflow(*nodes: str, head: str = "") -> str:
    """Returns a workflow 'w' of these nodes; `head` is an additional line of the workflow."""
    own = f"{head}\n" if head else ""
    return f"name: w\n{own}nodes:\n{''.join(nodes)}"


def node(node_id: str, *lines: str, handler: str = "h") -> str:
    below = "".join(indent(f"{line}\n", "  ") for line in lines)
    return f"- id: {node_id}\n  handler: {handler}\n{below}"


def head(*lines: str) -> str:
    """Returns a workflow of one valid node, with additional lines of the workflow."""
    return workflow(node("a"), head="\n".join(lines))


def of_a(*lines: str, handler: str = "h") -> str:
    """Returns a workflow of one node 'a' with additional lines."""
    return workflow(node("a", *lines, handler=handler))
