"""What the nodes of a simulated workflow do: written in their config, so that the end is known."""

import hashlib
from typing import cast

import msgspec

from runnel.core.json_types import Json
from runnel.core.states import NodeState
from runnel.core.workflow import Node

WORK = "work"
LARGE_CHARS = 200
# What user code says when it fails, for a while and for good.
BROKEN_LINE = "the simulated network of the simulated user"
SAYS_SO = "the script says so"
ALL_ITEMS, ODD_ITEMS = "all", "odd"

_encode = msgspec.json.Encoder(order="deterministic").encode


def work_config(
    *, takes_s: float, fails: int = 0, is_bad: bool = False, is_large: bool = False, **more: Json
) -> dict[str, Json]:
    """Fails `fails` times as a network does; then for good if it `is_bad`, else it succeeds.

    More that a script may say: `of`, templates on whose values the output depends; `skips`, that
    its code skips it, or every other item; `kills`, how many workers it takes down first;
    `bad_children`, in how many attempts of its own execution, a child, it fails for good.
    """
    return {"takes": takes_s, "fails": fails, "bad": is_bad, "large": is_large, **more}


def output_of(config: dict[str, Json], of: Json, node_id: str, item: int | None) -> Json:
    """`of` is what the templates of the same name came to: another value gives another output."""
    text = node_id if item is None else f"{node_id}[{item}]"
    if "of" in config:
        text += ":" + hashlib.blake2b(_encode(of), digest_size=4).hexdigest()
    return text * LARGE_CHARS if config["large"] else text


def skips(config: dict[str, Json], item: int | None) -> bool:
    said = config.get("skips")
    return said == ALL_ITEMS or (said == ODD_ITEMS and item is not None and item % 2 == 1)


def is_bad(config: dict[str, Json], execution_id: str) -> bool:
    """Fails for good, always or in the first few children of their parent's node."""
    bad_children = cast("int", config.get("bad_children", 0))
    is_child = "." in execution_id
    attempt = int(execution_id.rpartition(".")[2]) if is_child else 0
    return bool(config["bad"]) or 0 < attempt <= bad_children


def error_of(node: Node) -> tuple[str, str]:
    """The type of the error that a node which fails by its script fails with, and its message."""
    if cast("float", node.config["takes"]) > node.timeout_seconds:
        return "TaskTimeoutError", f"{node.timeout_seconds:g} s"
    if cast("int", node.config["fails"]) > node.retry.max_retries:
        return "ConnectionError", BROKEN_LINE
    return "ValueError", SAYS_SO


def state_of(node: Node, execution_id: str, *, items: int | None) -> NodeState:
    """How a node that runs ends by its script; `items` is the length of its list, if it has one."""
    if items == 0:
        return NodeState.COMPLETED
    is_exhausted = cast("int", node.config["fails"]) > node.retry.max_retries
    hangs = cast("float", node.config["takes"]) > node.timeout_seconds
    if is_exhausted or hangs or is_bad(node.config, execution_id):
        return NodeState.FAILED
    return NodeState.SKIPPED if items is None and skips(node.config, None) else NodeState.COMPLETED
