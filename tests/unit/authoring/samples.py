"""Short ways to write the YAML of a workflow for tests."""

from textwrap import indent
from typing import NamedTuple


class Case(NamedTuple):
    """What a user wrote, and every problem in it."""

    text: str
    problems: tuple[str, ...]


def case(text: str, *problems: str) -> Case:
    return Case(text, problems)


def workflow(*nodes: str, head: str = "") -> str:
    """A workflow 'w' of these nodes; `head` is a further line of its own."""
    own = f"{head}\n" if head else ""
    return f"name: w\n{own}nodes:\n{''.join(nodes)}"


def node(node_id: str, *lines: str, handler: str = "h") -> str:
    below = "".join(indent(f"{line}\n", "  ") for line in lines)
    return f"- id: {node_id}\n  handler: {handler}\n{below}"


def head(*lines: str) -> str:
    """A workflow of one good node, with these lines of its own."""
    return workflow(node("a"), head="\n".join(lines))


def of_a(*lines: str, handler: str = "h") -> str:
    """A workflow of one node 'a' with these lines."""
    return workflow(node("a", *lines, handler=handler))
