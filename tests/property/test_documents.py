"""Any valid workflow can be written as JSON or YAML and read back as the same one."""

import json
from collections.abc import Callable

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runnel.authoring.documents import read_document
from runnel.authoring.documents.export import to_document
from runnel.core.ids import NodeId
from runnel.core.retry import RetryPolicy
from runnel.core.run_when import RunWhen
from runnel.core.templates.nodes import RESERVED_NAMES
from runnel.core.validation.checks import NAME
from runnel.core.values import Json
from runnel.core.workflow import Node, OnFailure, RateLimit, Workflow, hash_workflow
from runnel.errors import InvalidWorkflowError
from tests.workflow_text import load_text

texts = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="{"), max_size=8)
names = texts.filter(NAME.fits)
ids = names.filter(lambda name: name not in RESERVED_NAMES)
seconds = st.floats(min_value=0.001, max_value=1e6)
numbers = st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(texts, below, max_size=3),
    max_leaves=6,
)
policies = st.builds(
    RetryPolicy,
    max_retries=st.integers(0, 9),
    initial_delay=seconds,
    max_delay=seconds,
    exponential_base=st.floats(1, 9),
    jitter=st.booleans(),
    retry_on=st.lists(names, max_size=2).map(tuple),
    no_retry_on=st.lists(names, max_size=2).map(tuple),
)
plain = st.fixed_dictionaries(
    {},
    optional={
        "condition": st.sampled_from(["true", "input.x > 3", "{{ input.y }}"]),
        "run_when": st.sampled_from(RunWhen),
        "retry": policies,
        "timeout_seconds": seconds,
        "resource_tag": names,
        "concurrency_key": st.sampled_from(["key", "{{ input.user }}"]),
        "concurrency_limit": st.integers(1, 9),
        "for_each": st.sampled_from(["input.list", "[1, none, {'a': 2}]"]),
        "queue": names,
    },
)


@st.composite
def workflows(draw: st.DrawFn, *, depth: int = 1) -> Workflow:
    drawn_ids = draw(st.lists(ids, min_size=1, max_size=5, unique=True))
    nodes = [draw(nodes_after(drawn_ids[:at], name, depth)) for at, name in enumerate(drawn_ids)]
    return Workflow(
        name=draw(names),
        nodes=tuple(nodes),
        input=draw(st.none() | st.just({"type": "object"})),
        on_failure=draw(st.sampled_from(OnFailure)),
        timeout_seconds=draw(st.none() | seconds),
        sla_seconds=draw(st.none() | seconds),
        max_concurrency=draw(st.none() | st.integers(1, 9)),
        priority=draw(st.integers(-100, 100)),
        rate_limits=draw(
            st.dictionaries(names, st.builds(RateLimit, rate_per_second=seconds), max_size=2)
        ),
        labels=draw(st.dictionaries(names, texts, max_size=2)),
        output=draw(values),
    )


@st.composite
def nodes_after(draw: st.DrawFn, earlier: list[str], name: str, depth: int) -> Node:
    parents = draw(st.lists(st.sampled_from(earlier), unique=True)) if earlier else []
    named = [parent for parent in parents if parent.isidentifier() and draw(st.booleans())]
    config = draw(st.dictionaries(texts, values, max_size=2))
    has_child = depth > 0 and draw(st.booleans())
    return Node(
        id=NodeId(name),
        handler="workflow" if has_child else draw(st.sampled_from(["h", "my handler"])),
        config={"input": config} if has_child else config | {"named": named},
        dependencies=tuple(map(NodeId, parents)),
        child=draw(workflows(depth=depth - 1)) if has_child else None,
        **draw(plain),
    )


@pytest.mark.slow
@given(workflows())
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_written_workflow_reads_back_as_the_same(workflow: Workflow) -> None:
    document = to_document(workflow)

    in_json = load_text(json.dumps(document), source="json")
    in_yaml = load_text(yaml.safe_dump(document, allow_unicode=True), source="yaml")

    assert read_document(document) == workflow
    assert in_json == workflow
    assert in_yaml == workflow
    assert hash_workflow(in_json) == hash_workflow(in_yaml)


broken = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(),
    lambda below: (
        st.lists(below, max_size=4)
        | st.dictionaries(
            st.sampled_from(["name", "nodes", "id", "handler", "config", "retry", "for_each"])
            | st.text(max_size=4),
            below,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(broken)
@settings(deadline=None)
def test_any_data_is_read_or_refused_and_nothing_else(data: Json) -> None:
    problems = refused(lambda: read_document(data))

    assert all(problem and problem.isprintable() for problem in problems)


@given(st.text(st.sampled_from(" \n\t-:,?&*!|>'\"%@`{}[]#ab1.~<=\0é\ud800"), max_size=60))
@settings(deadline=None)
def test_any_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    problems = refused(lambda: load_text(text))

    assert problems, "no such text is a whole workflow"
    assert all(problem and problem.isprintable() for problem in problems)


def refused(read: Callable[[], Workflow]) -> tuple[str, ...]:
    try:
        read()
    except InvalidWorkflowError as error:
        return error.problems
    return ()
