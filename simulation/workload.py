"""Random workflows: graphs, policies, maps, children, keys, rates, signals, sleeps, retries."""

import hashlib
from random import Random
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from runnel.core.ids import NodeId
from runnel.core.states import NodeState
from runnel.core.values import Json
from runnel.core.workflow import (
    CHILD_WORKFLOW,
    CLEAN_UP,
    Node,
    OnFailure,
    RateLimit,
    RetryPolicy,
    RunWhen,
    Workflow,
)

# What the nodes of a simulated workflow do: written in their config, so that the end is known.

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


SIGNALS = ("go", "ahead")
NODES_MAX = 6
# Of the second, few tasks are given a token soon enough to be kept waiting by their worker.
RATES = {
    "api": RateLimit(rate_per_second=2.0, burst=1),
    "slow": RateLimit(rate_per_second=0.4, burst=1),
}
KEY_LIMITS = {"one": 1, "two": 2}
NONE = "none"
# More of the default, or hardly any graph would run to its end.
_RULES = (*RunWhen, RunWhen.DEFAULT, RunWhen.DEFAULT, RunWhen.DEFAULT)


class Workload:
    """Makes the workflows of one execution, all from the same input; `may_kill` its workers."""

    def __init__(self, chance: Random, *, may_kill: bool) -> None:
        self._chance = chance
        self._may_kill = may_kill
        self.input: dict[str, Json] = {
            "n": chance.randrange(10_000),
            "list": [chance.randrange(100) for _ in range(chance.choice([0, 1, 2, 4]))],
            "off": False,
            "key": chance.choice([*KEY_LIMITS]),
        }

    def workflow(self, name: str, *, depth: int = 0) -> Workflow:
        chance = self._chance
        is_limited = chance.random() < 0.5
        nodes: list[Node] = []
        for index in range(chance.randint(1, NODES_MAX - 2 * depth)):
            parents = tuple(node.id for node in nodes if chance.random() < 0.45)
            nodes.append(
                self._node(NodeId(f"n{index}"), parents, nodes, is_limited=is_limited, depth=depth)
            )
        return Workflow(
            name=name,
            nodes=tuple(nodes),
            on_failure=chance.choice([*OnFailure]),
            max_concurrency=chance.choice([None, 1, 2]) if is_limited else None,
            rate_limits=RATES,
            output=self._output(nodes),
        )

    def _output(self, nodes: list[Node]) -> Json:
        """None: what the last nodes gave."""
        if self._chance.random() < 0.5:
            return None
        told = [node.id for node in nodes if self._chance.random() < 0.7]
        return {"n": "{{ input.n }}", "of": {node_id: _value_of(node_id) for node_id in told}}

    def _node(
        self,
        id_: NodeId,
        parents: tuple[NodeId, ...],
        earlier: list[Node],
        *,
        is_limited: bool,
        depth: int,
    ) -> Node:
        chance = self._chance
        fields: dict[str, Any] = {
            "id": id_,
            "dependencies": parents,
            "run_when": chance.choice(_RULES),
            "condition": self._condition(parents),
        }
        kind = chance.random() if earlier else 1.0
        if kind < 0.06:
            return Node(handler="sleep", config={"seconds": chance.choice([0.5, 4])}, **fields)
        if kind < 0.18 and depth == 0:
            return Node(handler="wait_for_signal", config=self._signal(id_), **fields)
        if kind < 0.28 and depth == 0:
            return self._child(fields, [node for node in earlier if node.id in parents])
        return self._work(fields, earlier, is_limited=is_limited, depth=depth)

    def _condition(self, parents: tuple[NodeId, ...]) -> str | None:
        """False, or true after a look at an output, which may have been put aside."""
        chance = self._chance
        if not parents or chance.random() < 0.7:
            return None
        if chance.random() < 0.4:
            return chance.choice(["false", "input.off"])
        return f"({parents[0]} | default(1)) != 'never'"

    def _signal(self, id_: NodeId) -> dict[str, Json]:
        name = SIGNALS[int(id_[1:]) % len(SIGNALS)]
        if self._chance.random() < 0.5:
            return {"signal": name}
        return {
            "signal": name,
            "timeout_seconds": self._chance.choice([0.5, 3]),
            "on_timeout": self._chance.choice(["fail", "complete"]),
        }

    def _child(self, fields: dict[str, Any], parents: list[Node]) -> Node:
        """Its input is small, because one that is not is refused."""
        chance = self._chance
        given: dict[str, Json] = {
            "n": "{{ input.n }}",
            "list": [chance.randrange(100)],
            "off": False,
            "key": "{{ input.key }}",
        }
        if small := [node.id for node in parents if _is_small(node)]:
            given["of"] = _value_of(chance.choice(small))
        if chance.random() < 0.35:
            fields["for_each"] = chance.choice(["[31, 32]", "input.list"])
            given["item"] = "{{ item }}"
        retries = chance.choice([0, 0, 1, 2])
        return Node(
            handler="workflow",
            child=self.workflow(f"child-{fields['id']}", depth=1),
            config={"input": given},
            retry=RetryPolicy(
                max_retries=retries,
                initial_delay=0.2,
                max_delay=1.0,
                retry_on=("ChildFailed",) if retries else (),
            ),
            **fields,
        )

    def _work(
        self, fields: dict[str, Any], earlier: list[Node], *, is_limited: bool, depth: int
    ) -> Node:
        chance = self._chance
        hangs = chance.random() < 0.04
        if chance.random() < 0.25:
            fields["for_each"] = self._list(fields["dependencies"], earlier)
        if is_limited and chance.random() < 0.5:
            key = str(self.input["key"])
            fields["concurrency_key"] = chance.choice([key, "{{ input.key }}"])
            fields["concurrency_limit"] = KEY_LIMITS[key]
        if chance.random() < (0.14 if "for_each" in fields else 0.1):
            fields["resource_tag"] = chance.choice([*RATES])
        return Node(
            handler=WORK,
            config=work_config(
                takes_s=1_000.0 if hangs else chance.choice([0.0, 0.01, 0.3, 2.0]),
                fails=chance.choice([0, 0, 0, 0, 1, 1, 2]),
                is_bad=chance.random() < 0.05,
                is_large=chance.random() < 0.15,
                **self._more(fields, earlier, depth=depth),
            ),
            retry=RetryPolicy(
                max_retries=chance.choice([0, 1, 2, 3]), initial_delay=0.2, max_delay=1.0
            ),
            timeout_seconds=3.0 if hangs else 10_000.0,
            **fields,
        )

    def _list(self, parents: tuple[NodeId, ...], earlier: list[Node]) -> str:
        chance = self._chance
        maps = [node.id for node in earlier if node.id in parents and node.for_each is not None]
        if maps and chance.random() < 0.6:
            return f"{chance.choice(maps)} | default([7])"
        if chance.random() < 0.3:
            return "input.list"
        return str([10 * number for number in range(chance.choice([0, 1, 3, 7]))])

    def _more(self, fields: dict[str, Any], earlier: list[Node], *, depth: int) -> dict[str, Json]:
        chance = self._chance
        above = fields["dependencies"]
        if fields["run_when"] not in CLEAN_UP:  # which may run before what is further up has ended
            above = _above(above, earlier)
        seen = [node.id for node in earlier if node.id in above]
        of: dict[str, Json] = {node_id: _value_of(node_id) for node_id in seen}
        of["n"] = "{{ input.n }}"
        if "for_each" in fields:
            of["item"] = "{{ item }}"
        more: dict[str, Json] = {"of": of}
        if chance.random() < 0.06:
            more["skips"] = chance.choice([ALL_ITEMS, ODD_ITEMS])
        if self._may_kill and chance.random() < 0.05:
            more["kills"] = chance.choice([1, 2, 4])
        if depth and chance.random() < 0.15:
            more["bad_children"] = chance.choice([1, 2])
        return more


def with_endless_node(workflow: Workflow, *, in_child: bool = False) -> Workflow:
    """For an execution that will be cancelled: the code of this node ends only when told to.

    So it is in its children, unless they are clean-up, which would run after that.
    """
    nodes = tuple(
        replace(node, child=with_endless_node(node.child))
        if node.child is not None and node.run_when not in CLEAN_UP
        else node
        for node in workflow.nodes
    )
    return replace(workflow, nodes=(*nodes, _endless_child() if in_child else _endless()))


def _endless() -> Node:
    return Node(
        id=NodeId("endless"),
        handler=WORK,
        config=work_config(takes_s=100_000.0),
        timeout_seconds=200_000.0,
    )


def _endless_child() -> Node:
    cleans = Node(
        id=NodeId("cleans"),
        handler=WORK,
        config=work_config(takes_s=0.3),
        dependencies=(NodeId("endless"),),
        run_when=RunWhen.ALL_SETTLED,
    )
    child = Workflow(name="child-endless", nodes=(_endless(), cleans))
    return Node(id=NodeId("endless"), handler=CHILD_WORKFLOW, child=child)


def signals_of(workflow: Workflow) -> list[str]:
    """The names of the signals that it may wait for, its children's not counted."""
    return [
        str(node.config["signal"]) for node in workflow.nodes if node.handler == "wait_for_signal"
    ]


def _value_of(node_id: str) -> str:
    return f"{{{{ {node_id} | default('{NONE}') }}}}"


def _is_small(node: Node) -> bool:
    return node.handler == WORK and node.for_each is None and not node.config["large"]


def _above(parents: tuple[NodeId, ...], earlier: list[Node]) -> set[NodeId]:
    """The parents, and the parents of these."""
    return {*parents, *(up for node in earlier if node.id in parents for up in node.dependencies)}
