"""What the nodes of a simulated workflow do: written in their config, so that the end is known."""

from typing import cast

import msgspec

from runnel.core.json_types import Json
from runnel.core.workflow import Node, Workflow

WORK = "work"
LARGE_CHARS = 200


def work_config(
    *, takes_s: float, fails: int = 0, is_bad: bool = False, is_large: bool = False
) -> dict[str, Json]:
    """Fails `fails` times as a network does; then for good if it `is_bad`, else it succeeds."""
    return {"takes": takes_s, "fails": fails, "bad": is_bad, "large": is_large}


def output_of(config: dict[str, Json], node_id: str, item: int | None) -> Json:
    text = node_id if item is None else f"{node_id}[{item}]"
    return text * LARGE_CHARS if config["large"] else text


def will_succeed(node: Node) -> bool | None:
    """None for what its script does not decide: a child, a signal, a sleep."""
    if node.handler != WORK:
        return None
    if node.for_each is not None:
        items = items_of(node)
        if not items:
            return None if items is None else True
    is_exhausted = cast("int", node.config["fails"]) > node.retry.max_retries
    hangs = cast("float", node.config["takes"]) > node.timeout_seconds
    return not (is_exhausted or hangs or node.config["bad"])


def expected_output(node: Node) -> Json:
    items = items_of(node)
    if items is None:
        return output_of(node.config, node.id, None)
    return [output_of(node.config, node.id, item) for item in range(len(items))]


def items_of(node: Node) -> list[Json] | None:
    """None for a list that is known only when it runs."""
    if node.for_each is None or not node.for_each.startswith("["):
        return None
    return cast("list[Json]", msgspec.json.decode(node.for_each))


def false_conditions(workflow: Workflow) -> set[str]:
    return {node.id for node in workflow.nodes if node.condition == "false"}
