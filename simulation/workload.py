"""Generates random workflows with maps, children, keys, rates, signals, sleeps and retries."""

import hashlib
from random import Random
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from runnel.core.ids import NodeId
from runnel.core.retry import RetryPolicy
from runnel.core.run_when import CLEAN_UP_RULES, RunWhen
from runnel.core.states import NodeState
from runnel.core.values import Json
from runnel.core.workflow import CHILD_WORKFLOW, Node, OnFailure, RateLimit, Workflow

# The config of a simulated node is a script, so that the result of the node is known in advance.

WORK = "work"
LARGE_CHARS = 200
# The messages of user code for a transient and a permanent failure.
TRANSIENT_MESSAGE = "the simulated network of the simulated user"
SCRIPTED_MESSAGE = "the script says so"
ALL_ITEMS, ODD_ITEMS = "all", "odd"

_encode = msgspec.json.Encoder(order="deterministic").encode


def make_work_config(
    *, takes_s: float, fails: int = 0, is_bad: bool = False, is_large: bool = False, **more: Json
) -> dict[str, Json]:
    """Returns the script of a node.

    The node first fails `fails` times with a transient error. Then the node fails permanently if
    `is_bad`, or succeeds if not. `of` has templates whose values determine the output. `skips`
    skips the node, or every second item of a map. `kills` is the number of workers that the node
    crashes first. `bad_children` is the number of child executions of the node that fail
    permanently.
    """
    return {"takes": takes_s, "fails": fails, "bad": is_bad, "large": is_large, **more}


def compute_output(
    config: dict[str, Json], template_values: Json, node_id: str, item: int | None
) -> Json:
    """Returns an output that depends on the resolved templates of `of`."""
    text = node_id if item is None else f"{node_id}[{item}]"
    if "of" in config:
        text += ":" + hashlib.blake2b(_encode(template_values), digest_size=4).hexdigest()
    return text * LARGE_CHARS if config["large"] else text


def is_skipped(config: dict[str, Json], item: int | None) -> bool:
    skips = config.get("skips")
    return skips == ALL_ITEMS or (skips == ODD_ITEMS and item is not None and item % 2 == 1)


def is_permanent_failure(config: dict[str, Json], execution_id: str) -> bool:
    """Returns True if the node fails permanently in this execution.

    A script can make the node fail in every execution, or only in the first child executions of a
    node.
    """
    bad_children = cast("int", config.get("bad_children", 0))
    is_child = "." in execution_id
    attempt = int(execution_id.rpartition(".")[2]) if is_child else 0
    return bool(config["bad"]) or 0 < attempt <= bad_children


def predict_error(node: Node) -> tuple[str, str]:
    """Returns error type and message of a node that fails by its script."""
    if cast("float", node.config["takes"]) > node.timeout_seconds:
        return "TaskTimeoutError", f"{node.timeout_seconds:g} s"
    if cast("int", node.config["fails"]) > node.retry.max_retries:
        return "ConnectionError", TRANSIENT_MESSAGE
    return "ValueError", SCRIPTED_MESSAGE


def predict_state(node: Node, execution_id: str, *, items: int | None) -> NodeState:
    """Returns the state that the script of a node leads to; `items` is the length of its list."""
    if items == 0:
        return NodeState.COMPLETED
    is_exhausted = cast("int", node.config["fails"]) > node.retry.max_retries
    hangs = cast("float", node.config["takes"]) > node.timeout_seconds
    if is_exhausted or hangs or is_permanent_failure(node.config, execution_id):
        return NodeState.FAILED
    return (
        NodeState.SKIPPED
        if items is None and is_skipped(node.config, None)
        else NodeState.COMPLETED
    )


SIGNALS = ("go", "ahead")
NODES_MAX = 6
# The second rate limit is so slow that most tasks are deferred instead of waiting in their worker.
RATE_LIMITS = {
    "api": RateLimit(rate_per_second=2.0, burst=1),
    "slow": RateLimit(rate_per_second=0.4, burst=1),
}
KEY_LIMITS = {"one": 1, "two": 2}
MISSING_OUTPUT = "none"
# The default rule is listed several times, because with other rules few graphs run to their end.
_RULES = (*RunWhen, RunWhen.DEFAULT, RunWhen.DEFAULT, RunWhen.DEFAULT)


class WorkflowGenerator:
    """Generates the workflows of one execution. With `may_kill`, nodes may crash workers."""

    def __init__(self, rng: Random, *, may_kill: bool) -> None:
        self._rng = rng
        self._may_kill = may_kill
        self.input: dict[str, Json] = {
            "n": rng.randrange(10_000),
            "list": [rng.randrange(100) for _ in range(rng.choice([0, 1, 2, 4]))],
            "off": False,
            "key": rng.choice([*KEY_LIMITS]),
        }

    def make_workflow(self, name: str, *, depth: int = 0) -> Workflow:
        rng = self._rng
        is_limited = rng.random() < 0.5
        nodes: list[Node] = []
        for index in range(rng.randint(1, NODES_MAX - 2 * depth)):
            parents = tuple(node.id for node in nodes if rng.random() < 0.45)
            nodes.append(
                self._make_node(
                    NodeId(f"n{index}"), parents, nodes, is_limited=is_limited, depth=depth
                )
            )
        return Workflow(
            name=name,
            nodes=tuple(nodes),
            on_failure=rng.choice([*OnFailure]),
            max_concurrency=rng.choice([None, 1, 2]) if is_limited else None,
            rate_limits=RATE_LIMITS,
            output=self._make_output(nodes),
        )

    def _make_output(self, nodes: list[Node]) -> Json:
        """Returns the `output` of a workflow; None means that the outputs of the last nodes are
        used.
        """
        if self._rng.random() < 0.5:
            return None
        output_ids = [node.id for node in nodes if self._rng.random() < 0.7]
        return {
            "n": "{{ input.n }}",
            "of": {node_id: _make_output_template(node_id) for node_id in output_ids},
        }

    def _make_node(
        self,
        id_: NodeId,
        parents: tuple[NodeId, ...],
        earlier: list[Node],
        *,
        is_limited: bool,
        depth: int,
    ) -> Node:
        rng = self._rng
        fields: dict[str, Any] = {
            "id": id_,
            "dependencies": parents,
            "run_when": rng.choice(_RULES),
            "condition": self._make_condition(parents),
        }
        kind = rng.random() if earlier else 1.0
        if kind < 0.06:
            return Node(handler="sleep", config={"seconds": rng.choice([0.5, 4])}, **fields)
        if kind < 0.18 and depth == 0:
            return Node(handler="wait_for_signal", config=self._make_signal_config(id_), **fields)
        if kind < 0.28 and depth == 0:
            return self._make_child_node(fields, [node for node in earlier if node.id in parents])
        return self._make_work_node(fields, earlier, is_limited=is_limited, depth=depth)

    def _make_condition(self, parents: tuple[NodeId, ...]) -> str | None:
        """Returns a false condition, a true condition that reads an output, or None for no
        condition.
        """
        rng = self._rng
        if not parents or rng.random() < 0.7:
            return None
        if rng.random() < 0.4:
            return rng.choice(["false", "input.off"])
        return f"({parents[0]} | default(1)) != 'never'"

    def _make_signal_config(self, id_: NodeId) -> dict[str, Json]:
        name = SIGNALS[int(id_[1:]) % len(SIGNALS)]
        if self._rng.random() < 0.5:
            return {"signal": name}
        return {
            "signal": name,
            "timeout_seconds": self._rng.choice([0.5, 3]),
            "on_timeout": self._rng.choice(["fail", "complete"]),
        }

    def _make_child_node(self, fields: dict[str, Any], parents: list[Node]) -> Node:
        """Returns a node with a child workflow and a small input, because the engine refuses a
        large input.
        """
        rng = self._rng
        config: dict[str, Json] = {
            "n": "{{ input.n }}",
            "list": [rng.randrange(100)],
            "off": False,
            "key": "{{ input.key }}",
        }
        if small := [node.id for node in parents if _is_small(node)]:
            config["of"] = _make_output_template(rng.choice(small))
        if rng.random() < 0.35:
            fields["for_each"] = rng.choice(["[31, 32]", "input.list"])
            config["item"] = "{{ item }}"
        retries = rng.choice([0, 0, 1, 2])
        return Node(
            handler="workflow",
            child=self.make_workflow(f"child-{fields['id']}", depth=1),
            config={"input": config},
            retry=RetryPolicy(
                max_retries=retries,
                initial_delay=0.2,
                max_delay=1.0,
                retry_on=("ChildFailed",) if retries else (),
            ),
            **fields,
        )

    def _make_work_node(
        self, fields: dict[str, Any], earlier: list[Node], *, is_limited: bool, depth: int
    ) -> Node:
        rng = self._rng
        hangs = rng.random() < 0.04
        if rng.random() < 0.25:
            fields["for_each"] = self._make_list_expression(fields["dependencies"], earlier)
        if is_limited and rng.random() < 0.5:
            key = str(self.input["key"])
            fields["concurrency_key"] = rng.choice([key, "{{ input.key }}"])
            fields["concurrency_limit"] = KEY_LIMITS[key]
        if rng.random() < (0.14 if "for_each" in fields else 0.1):
            fields["resource_tag"] = rng.choice([*RATE_LIMITS])
        return Node(
            handler=WORK,
            config=make_work_config(
                takes_s=1_000.0 if hangs else rng.choice([0.0, 0.01, 0.3, 2.0]),
                fails=rng.choice([0, 0, 0, 0, 1, 1, 2]),
                is_bad=rng.random() < 0.05,
                is_large=rng.random() < 0.15,
                **self._make_script(fields, earlier, depth=depth),
            ),
            retry=RetryPolicy(
                max_retries=rng.choice([0, 1, 2, 3]), initial_delay=0.2, max_delay=1.0
            ),
            timeout_seconds=3.0 if hangs else 10_000.0,
            **fields,
        )

    def _make_list_expression(self, parents: tuple[NodeId, ...], earlier: list[Node]) -> str:
        rng = self._rng
        maps = [node.id for node in earlier if node.id in parents and node.for_each is not None]
        if maps and rng.random() < 0.6:
            return f"{rng.choice(maps)} | default([7])"
        if rng.random() < 0.3:
            return "input.list"
        return str([10 * number for number in range(rng.choice([0, 1, 3, 7]))])

    def _make_script(
        self, fields: dict[str, Any], earlier: list[Node], *, depth: int
    ) -> dict[str, Json]:
        rng = self._rng
        above = fields["dependencies"]
        # A clean-up node may run before the parents of its parents have ended.
        if fields["run_when"] not in CLEAN_UP_RULES:
            above = _find_ancestors(above, earlier)
        read_ids = [node.id for node in earlier if node.id in above]
        of: dict[str, Json] = {node_id: _make_output_template(node_id) for node_id in read_ids}
        of["n"] = "{{ input.n }}"
        if "for_each" in fields:
            of["item"] = "{{ item }}"
        script: dict[str, Json] = {"of": of}
        if rng.random() < 0.06:
            script["skips"] = rng.choice([ALL_ITEMS, ODD_ITEMS])
        if self._may_kill and rng.random() < 0.05:
            script["kills"] = rng.choice([1, 2, 4])
        if depth and rng.random() < 0.15:
            script["bad_children"] = rng.choice([1, 2])
        return script


def add_endless_node(workflow: Workflow, *, in_child: bool = False) -> Workflow:
    """Adds a node whose code runs until it is cancelled, for an execution that will be cancelled.

    Child workflows get such a node too, except those of clean-up nodes, which run after the cancel.
    The workflow itself also gets a clean-up node after the endless node.
    """
    nested = _add_endless_to_children(workflow)
    endless = _make_endless_child() if in_child else _make_endless_node()
    return replace(nested, nodes=(*nested.nodes, endless, _make_clean_up_node("tidies")))


def _add_endless_to_children(workflow: Workflow) -> Workflow:
    nodes = tuple(
        replace(node, child=_add_endless_below(node.child))
        if node.child is not None and node.run_when not in CLEAN_UP_RULES
        else node
        for node in workflow.nodes
    )
    return replace(workflow, nodes=nodes)


def _add_endless_below(workflow: Workflow) -> Workflow:
    nested = _add_endless_to_children(workflow)
    return replace(nested, nodes=(*nested.nodes, _make_endless_node()))


def _make_endless_node() -> Node:
    return Node(
        id=NodeId("endless"),
        handler=WORK,
        config=make_work_config(takes_s=100_000.0),
        timeout_seconds=200_000.0,
    )


def _make_clean_up_node(node_id: str) -> Node:
    return Node(
        id=NodeId(node_id),
        handler=WORK,
        config=make_work_config(takes_s=0.3),
        dependencies=(NodeId("endless"),),
        run_when=RunWhen.ALL_SETTLED,
    )


def _make_endless_child() -> Node:
    cleans = _make_clean_up_node("cleans")
    child = Workflow(name="child-endless", nodes=(_make_endless_node(), cleans))
    return Node(id=NodeId("endless"), handler=CHILD_WORKFLOW, child=child)


def list_signals(workflow: Workflow) -> list[str]:
    """Returns the names of the signals that the workflow itself waits for, without
    child workflows.
    """
    return [
        str(node.config["signal"]) for node in workflow.nodes if node.handler == "wait_for_signal"
    ]


def _make_output_template(node_id: str) -> str:
    return f"{{{{ {node_id} | default('{MISSING_OUTPUT}') }}}}"


def _is_small(node: Node) -> bool:
    return node.handler == WORK and node.for_each is None and not node.config["large"]


def _find_ancestors(parents: tuple[NodeId, ...], earlier: list[Node]) -> set[NodeId]:
    """Returns the ids of the parents and of their direct parents."""
    return {*parents, *(up for node in earlier if node.id in parents for up in node.dependencies)}
