"""The same workflow as YAML, by the builder and as decorated functions gives the same graph.

Each part of a random workflow is written twice: as a document and as Python.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import runnel
from runnel import Cache, RetryPolicy, WorkflowDAG
from runnel.app.decorated import DecoratedWorkflow
from runnel.authoring.documents.export import to_document
from runnel.authoring.documents.yaml import write_yaml
from runnel.core.validation import find_problems
from runnel.core.values import Json
from runnel.core.workflow import Workflow, hash_workflow
from tests.property import decorated_tasks
from tests.workflow_text import load_text

MODULE = decorated_tasks.__name__
INPUT = {
    "type": "object",
    "properties": {"first": {"type": "string"}, "second": {"type": "integer", "default": 5}},
    "required": ["first"],
    "additionalProperties": False,
}
CHILD = {
    "name": "child",
    "input": {
        "type": "object",
        "properties": {"value": {"type": "integer"}},
        "required": ["value"],
        "additionalProperties": False,
    },
    "nodes": [
        {
            "id": "alpha",
            "handler": "python",
            "config": {"function": f"{MODULE}:alpha", "args": {"value": "{{ input.value }}"}},
        }
    ],
}


@dataclass(frozen=True)
class Value:
    """A value: `tree` is its form in a config, `expression` its form in an expression."""

    python: str
    tree: Json
    expression: str


@dataclass(frozen=True)
class Written:
    """A node as the keys of a document, and as one line of Python."""

    document: dict[str, Json]
    python: str


@dataclass
class Draft:
    """The nodes drawn so far."""

    nodes: list[Written] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def ids(self) -> list[str]:
        return [str(node.document["id"]) for node in self.nodes]


TEXTS = {
    "plain": "plain",
    "ünï 'quoted'": "ünï 'quoted'",
    "{{ no template }}": "{{ '{{' }} no template }}",
    "{% nor this": "{{ '{%' }} nor this",
}
PATHS = {
    "": "",
    "['key']": ".key",
    ".attribute": ".attribute",
    "[0]": "[0]",
    "[-1]['two words']": "[-1]['two words']",
}
numbers = st.integers(-999, 999).map(lambda n: Value(repr(n), n, str(n)))
constants = numbers | st.sampled_from([Value("None", None, "none"), Value("True", True, "true")])
texts = st.sampled_from(sorted(TEXTS)).map(lambda text: Value(repr(text), TEXTS[text], ""))
inputs = st.sampled_from(
    [
        Value("first", "{{ input.first }}", "input.first"),
        Value("second", "{{ input.second | default(5) }}", "(input.second | default(5))"),
    ]
)
plain = constants | texts | inputs
yes = st.booleans()
rarely = st.integers(0, 4).map(lambda n: n == 0)
sizes = st.integers(1, 5)
positions = st.integers(0, 9)
paths = st.sampled_from(sorted(PATHS))
shapes = st.sampled_from(["alone", "list", "object"])
tasks = st.sampled_from(["alpha", "beta", "gamma"])
core_handlers = st.sampled_from(["child", "output", "sleep", "wait_for_signal"])
signs = st.sampled_from(["==", "!=", "<", ">="])
policies = st.sampled_from(["fail_fast", "continue"])


def a_result(draw: st.DrawFn, draft: Draft, *, is_lenient: bool) -> Value:
    """Draws the output of an earlier node, or a part of it."""
    if not draft.nodes:
        return draw(inputs)
    at = draw(positions) % len(draft.nodes)
    path = draw(paths)
    node_id = draft.ids[at]
    source = (node_id if node_id.isidentifier() else f"nodes['{node_id}']") + PATHS[path]
    if not is_lenient:
        return Value(f"r{at}{path}", f"{{{{ {source} }}}}", source)
    source += " | default(none)"
    return Value(f"r{at}{path}", f"{{{{ {source} }}}}", f"({source})")


def a_value(draw: st.DrawFn, draft: Draft, *, is_lenient: bool = False) -> Value:
    """Draws a single value, or a list and an object of values."""
    shape = draw(shapes)
    count = 1 if shape == "alone" else 2
    parts = [
        a_result(draw, draft, is_lenient=is_lenient) if draw(yes) else draw(plain)
        for _ in range(count)
    ]
    if shape == "alone":
        return parts[0]
    if shape == "list":
        return Value(f"[{', '.join(v.python for v in parts)}]", [v.tree for v in parts], "")
    pairs = {f"k {at}": part for at, part in enumerate(parts)}
    python = ", ".join(f"{key!r}: {part.python}" for key, part in pairs.items())
    return Value(f"{{{python}}}", {key: part.tree for key, part in pairs.items()}, "")


options = st.fixed_dictionaries(
    {},
    optional={
        "retries": st.integers(0, 9),
        "timeout": st.integers(1, 600),
        "resource_tag": st.just("api"),
        "queue": st.just("slow"),
        "cache": st.booleans() | st.integers(1, 99),
        "concurrency_key": st.just("{{ input.first }}"),
        "concurrency_limit": st.integers(1, 9),
        "run_when": st.sampled_from(["none_failed", "all_settled", "all_completed"]),
    },
)
SPELLED = {"timeout": "timeout_seconds"}


def a_call(draw: st.DrawFn, draft: Draft) -> Written:
    """Draws a call of a task."""
    name = draw(tasks)
    chosen = draw(options)
    is_lenient = chosen.get("run_when") == "all_settled"
    given = {"value": a_value(draw, draft, is_lenient=is_lenient)}
    if draw(yes):
        given["other"] = a_value(draw, draft, is_lenient=is_lenient)
    document: dict[str, Json] = {"id": an_id(draw, draft, "total" if name == "gamma" else name)}
    python = name
    if chosen or document["id"].startswith("own"):
        id_argument = {"id": document["id"]} if document["id"].startswith("own") else {}
        python += f".options(**{ {**chosen, **id_argument}!r})"
    keyword_options = {
        SPELLED.get(key, key): value for key, value in chosen.items() if key != "retries"
    }
    if "retries" in chosen:
        keyword_options["retry"] = {"max_retries": chosen["retries"]}
    if type(chosen.get("cache")) is int:
        keyword_options["cache"] = {"ttl_seconds": chosen["cache"]}
    args = {key: value.tree for key, value in given.items()}
    document |= {"handler": "python", "config": {"function": f"{MODULE}:{name}", "args": args}}
    document |= keyword_options
    arguments = [f"{key}={value.python}" for key, value in given.items()]
    if draw(yes):
        items = _listed(draw(numbers))
        if draw(yes):
            items = a_result(draw, draft, is_lenient=is_lenient)
        source = _bare(items.expression).replace("default(none)", "default([])")
        args["value"], document["for_each"] = "{{ item }}", source
        arguments = [items.python, *arguments[1:]]
        return ordered(draw, draft, Written(document, python), f".map({', '.join(arguments)})")
    return ordered(draw, draft, Written(document, python), f"({', '.join(arguments)})")


def an_id(draw: st.DrawFn, draft: Draft, name: str) -> str:
    """Draws a numbered id, or one that the author chose."""
    if draw(rarely):
        return f"own-{len(draft.nodes)}" if draw(yes) else f"own{len(draft.nodes)}"
    draft.counts[name] += 1
    return name if draft.counts[name] == 1 else f"{name}_{draft.counts[name]}"


def ordered(draw: st.DrawFn, draft: Draft, node: Written, call: str) -> Written:
    """Adds a condition, and parents whose output is not used."""
    document, python = dict(node.document), node.python
    is_lenient = document.get("run_when") == "all_settled"
    if draw(yes):
        operand = a_result(draw, draft, is_lenient=is_lenient)
        sign = draw(signs)
        right = draw(numbers)
        python += f".when({operand.python} {sign} {right.python})"
        document["condition"] = f"{operand.expression} {sign} {right.expression}"
    after = [at for at in range(len(draft.nodes)) if draw(rarely)]
    if after:
        python += f".after({', '.join(f'r{at}' for at in after)})"
        document["after"] = [draft.ids[at] for at in after]
    return Written(document, f"{python}{call}")


def another(draw: st.DrawFn, draft: Draft) -> Written:
    """Draws a node that is not a task: a wait, a child, or a handler by name."""
    value = a_value(draw, draft)
    kinds: dict[str, tuple[str, dict[str, Json]]] = {
        "sleep": ("sleep(3)", {"seconds": 3}),
        "wait_for_signal": (
            "wait_for_signal('go', timeout=9)",
            {"signal": "go", "timeout_seconds": 9},
        ),
        "output": (f"handler('output')(value={value.python})", {"value": value.tree}),
        "child": ("child(value=7)", {"input": {"value": 7}, "definition": CHILD}),
    }
    name = draw(core_handlers)
    python, config = kinds[name]
    draft.counts[name] += 1
    number = draft.counts[name]
    document = {
        "id": name if number == 1 else f"{name}_{number}",
        "handler": "workflow" if name == "child" else name,
        "config": config,
    }
    callee, _, call = python.rpartition("(")
    return ordered(draw, draft, Written(document, callee), f"({call}")


@st.composite
def programs(draw: st.DrawFn) -> tuple[str, dict[str, Json]]:
    """Draws the Python source and the document."""
    draft = Draft()
    for _ in range(draw(sizes)):
        node = another(draw, draft) if draw(rarely) else a_call(draw, draft)
        parents = _parents(node.document, draft.ids)
        if node.document.pop("after", None):
            node.document["dependencies"] = parents
        draft.nodes.append(node)
    returned = a_value(draw, draft)
    on_failure = draw(policies)
    lines = [f"r{at} = {node.python}" for at, node in enumerate(draft.nodes)]
    source = "\n    ".join(
        [
            f"@workflow(name='flow', on_failure={on_failure!r}, timeout=60)",
            "def flow(first: str, second: int = 5):",
            *lines,
            f"return {returned.python}",
        ]
    ).replace("\n    def", "\ndef")
    document = {
        "name": "flow",
        "on_failure": on_failure,
        "timeout_seconds": 60,
        "input": INPUT,
        "nodes": [node.document for node in draft.nodes],
        "output": returned.tree,
    }
    if _is_last_alone(returned, draft):
        del document["output"]
    return source, document


@given(programs())
@settings(
    deadline=None,
    max_examples=settings().max_examples * 3 // 5,
    suppress_health_check=[HealthCheck.too_slow],
)
def test_yaml_builder_and_decorated_functions_give_one_graph(
    program: tuple[str, dict[str, Json]],
) -> None:
    source, document = program

    read = load_text(yaml.safe_dump(document, allow_unicode=True, sort_keys=False))
    traced = _traced(source)
    built = _built(document).to_workflow()

    assert traced == read
    assert built == read
    assert hash_workflow(traced) == hash_workflow(read) == hash_workflow(built)
    assert find_problems(read) == []
    assert load_text(write_yaml(to_document(traced))) == read


def _traced(source: str) -> Workflow:
    names = {name: getattr(runnel, name) for name in runnel.__all__}
    space: dict[str, Any] = {**names, **vars(decorated_tasks)}
    exec(source, space)
    flow: DecoratedWorkflow[..., Any] = space["flow"]
    return flow.to_workflow()


def _built(document: dict[str, Any]) -> WorkflowDAG:
    fields = {key: document[key] for key in ("input", "output") if key in document}
    dag = WorkflowDAG(
        document["name"],
        on_failure=document.get("on_failure", "fail_fast"),
        timeout_seconds=document.get("timeout_seconds"),
        **fields,
    )
    for node in document["nodes"]:
        node_fields = {key: value for key, value in node.items() if key not in {"id", "handler"}}
        config = dict(node_fields.pop("config"))
        child = config.pop("definition", None)
        if "retry" in node_fields:
            node_fields["retry"] = RetryPolicy(**node_fields["retry"])
        if node_fields.get("cache") is not None:
            kept = node_fields.pop("cache")
            node_fields |= (
                {"cache": Cache(**kept) if isinstance(kept, dict) else Cache()} if kept else {}
            )
        dag.add_node(
            node["id"],
            node["handler"],
            config,
            depends_on=node_fields.pop("dependencies", None),
            child=None if child is None else _built(child),
            **node_fields,
        )
    return dag


def _listed(value: Value) -> Value:
    return Value(f"[{value.python}]", [value.tree], f"[{value.expression}]")


def _bare(expression: str) -> str:
    is_whole = expression.startswith("(") and expression.endswith(")")
    return expression[1:-1] if is_whole else expression


def _parents(document: dict[str, Json], earlier: list[str]) -> list[str]:
    """Returns the nodes that it refers to anywhere, in the order of the document."""
    config = {
        key: value
        for key, value in document["config"].items()
        if key not in {"function", "definition"}
    }
    text = str([config, document.get("condition"), document.get("for_each")])
    after = document.get("after", [])
    return [
        node
        for node in earlier
        if node in after or re.search(rf"(?<![\w-]){re.escape(node)}(?![\w-])", text)
    ]


def _is_last_alone(returned: Value, draft: Draft) -> bool:
    """Returns whether the only leaf is the returned node. Then `output` is omitted."""
    parents = set()
    for at, node in enumerate(draft.nodes):
        stated = node.document.get("dependencies")
        parents |= set(stated or _parents(node.document, draft.ids[:at]))
    leaves = [at for at, node in enumerate(draft.ids) if node not in parents]
    return [returned.python] == [f"r{at}" for at in leaves]
