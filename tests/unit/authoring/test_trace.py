"""Decorated functions are traced into the same workflow as an equivalent document."""

import functools
import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import runnel
from runnel import Context, task
from runnel.app.decorated import DecoratedWorkflow
from runnel.authoring.decorators.trace import get_current_trace
from runnel.authoring.documents import read_document
from runnel.core.graph import Graph
from runnel.core.retry import RetryPolicy
from runnel.core.templates.template import compile_tree
from runnel.core.workflow import Workflow
from runnel.errors import InputError, TraceError
from tests.unit.authoring import traced_flows as flows
from tests.unit.authoring import typed_flow

HERE = flows.__name__
diamond: Any = flows.diamond
URL = {
    "type": "object",
    "properties": {"url": {"type": "string"}},
    "required": ["url"],
    "additionalProperties": False,
}
FETCH = {
    "id": "fetch",
    "handler": "python",
    "config": {"function": f"{HERE}:fetch", "args": {"url": "{{ input.url }}"}},
    "timeout_seconds": 30,
}


def python(node_id: str, function: str, **args: Any) -> dict[str, Any]:
    config = {"function": f"{HERE}:{function}", "args": args}
    return {"id": node_id, "handler": "python", "config": config}


DIAMOND: dict[str, Any] = {
    "name": "diamond",
    "input": URL,
    "nodes": [
        FETCH,
        python("parse", "parse", page="{{ fetch }}"),
        python("scan", "scan", page="{{ fetch }}"),
        python("merge", "merge", left="{{ parse }}", right="{{ scan }}"),
    ],
}


class Roots(dict[str, Any]):
    def lookup(self, root: str) -> Any:
        return self[root]


def nodes_of(flow: DecoratedWorkflow[..., Any]) -> dict[str, Any]:
    return {node.id: node for node in flow.to_workflow().nodes}


def test_calls_become_nodes_and_arguments_become_dependencies() -> None:
    traced = flows.diamond.to_workflow()

    assert traced == read_document(DIAMOND)
    assert Graph(traced).layers() == [["fetch"], ["parse", "scan"], ["merge"]]


def test_every_field_of_a_node_is_an_option() -> None:
    said = {
        "retry": {"max_retries": 1, "jitter": False},
        "timeout_seconds": 120,
        "soft_timeout_seconds": 60,
        "run_when": "all_settled",
        "resource_tag": "api",
        "concurrency_key": "{{ input.url }}",
        "concurrency_limit": 2,
        "queue": "slow",
        "cache": {"ttl_seconds": 3600},
    }
    node = python("clean", "tidy_up", what="{{ fetch | default(none) }}") | said
    node["config"]["mode"] = "process"
    document = {"name": "all_options", "input": URL, "nodes": [FETCH, node]}

    assert flows.all_options.to_workflow() == read_document(document)


def test_a_task_without_retries_has_the_default_policy() -> None:
    default = RetryPolicy(max_retries=7, initial_delay=9.0)

    traced = flows.diamond.to_workflow(retry=default)

    assert traced == read_document(
        DIAMOND | {"nodes": [FETCH | {"retry": 3}, *DIAMOND["nodes"][1:]]}, retry=default
    )


def test_the_signature_defines_the_input_schema() -> None:
    traced = flows.typed.to_workflow()

    assert traced.input is not None
    assert traced.input["required"] == ["text", "number", "kind"]
    properties = traced.input["properties"]
    assert properties["text"] == {"type": "string"}
    assert properties["number"] == {"type": "number"}
    assert properties["mode"] == {"enum": ["a", "b"], "default": "a"}
    assert properties["author"]["default"] == {"name": "Ada"}
    assert properties["anything"] == {"default": None}
    assert set(traced.input["$defs"]) == {"Kind", "Options", "Author"}


def test_two_types_with_the_same_name_get_separate_definitions() -> None:
    schema: Any = flows.of_one_name.to_workflow().input

    names = [schema["properties"][name]["$ref"].removeprefix("#/$defs/") for name in ("old", "new")]
    assert [list(schema["$defs"][name]["properties"]) for name in names] == [["width"], ["height"]]


def test_every_field_of_a_workflow_is_an_option() -> None:
    traced = flows.typed.to_workflow()

    assert (traced.name, traced.on_failure, traced.labels) == ("annual", "continue", {"team": "a"})
    assert (traced.timeout_seconds, traced.sla_seconds, traced.max_concurrency) == (3600, 60, 2)
    assert traced.priority == 7
    assert traced.rate_limits["api"].rate_per_second == 3
    assert traced.rate_limits["slow"].burst == 2


def test_a_parameter_with_a_default_is_optional() -> None:
    args = nodes_of(flows.typed)["merge"].config["args"]

    assert args["left"][3:] == [
        '{{ input.mode | default("a") }}',
        "{{ input.names | default(none) }}",
    ]
    assert args["right"]["a"] == '{{ (input.author | default({"name": "Ada"})).name }}'


def test_a_comparison_of_results_becomes_a_condition() -> None:
    nodes = nodes_of(flows.conditions)

    least = "(input.least | default(3))"
    assert nodes["parse"].condition == f"(fetch.size > {least}) and (not fetch.ok)"
    assert nodes["scan"].condition == "fetch.title | length > 3"
    assert nodes["parse_2"].condition == "(true) and (fetch.a == none)"


def test_a_condition_may_use_an_input_with_a_default() -> None:
    assert nodes_of(flows.flagged)["scan"].condition == "input.is_deep | default(false)"


def test_a_result_that_may_be_skipped_needs_no_default() -> None:
    traced = flows.conditions.to_workflow()

    nodes = nodes_of(flows.conditions)
    assert nodes["parse_2"].config["args"]["page"] == "{{ parse }}"
    assert traced.output == {
        "alarm": "{{ parse }}",
        "late": "{{ parse_2.x }}",
        "news": '{{ "none" if (scan | default(none)) is none else scan }}',
        "page": "{{ fetch }}",
        "tidied": "{{ clean }}",
    }


def test_a_clean_up_task_gets_none_for_failed_results() -> None:
    assert nodes_of(flows.conditions)["clean"].config["args"]["what"] == (
        "{{ fetch.title | default(none) }}"
    )


def test_a_map_accepts_a_list_that_is_known_at_run_time() -> None:
    nodes = nodes_of(flows.maps)

    assert nodes["fetch"].for_each == "input.urls"
    assert nodes["fetch"].config["args"] == {"url": "{{ item }}"}
    assert nodes["parse"].for_each == "fetch"
    assert nodes["parse"].config["args"] == {"page": "{{ item }}", "depth": 2}
    assert nodes["parse_2"].for_each == '["a", fetch[0]]'
    assert nodes["diamond"].for_each == "fetch_2.links"
    assert nodes["diamond"].config == {"input": {"url": "{{ item }}"}}


def test_built_in_waits_and_handlers_become_nodes() -> None:
    nodes = nodes_of(flows.waits)

    assert nodes["sleep"].config == {"seconds": "{{ fetch.seconds }}"}
    approval = nodes["approval"]
    assert (approval.handler, approval.dependencies) == ("wait_for_signal", ("sleep",))
    assert approval.config == {
        "signal": "approve",
        "timeout_seconds": 60,
        "on_timeout": "complete",
    }
    assert nodes["data_processor"].config["data"] == "{{ fetch }}"
    assert nodes["output"].config == {"link": "{{ item }}"}


def test_text_inserts_results_and_keeps_literal_text() -> None:
    args = nodes_of(flows.texts)["merge"].config["args"]

    assert args["left"] == "{{ fetch.title }} of {{ input.url }} {3}"
    assert args["right"] == "{{ '{{' }} not a template }}"


def test_brackets_in_literal_text_are_escaped() -> None:
    args = nodes_of(flows.brackets)["merge"].config["args"]

    assert compile_tree(args).resolve(Roots(input={"url": "u"})) == {
        "left": "{u}",
        "right": ["{{ fetch }}", "{{ fetch }}", "{%u"],
    }


def test_a_copy_of_a_placeholder_is_the_placeholder() -> None:
    assert nodes_of(flows.copies)["merge"].config["args"] == {
        "left": {"left": "{{ fetch }}", "right": "{{ fetch }}"},
        "right": ["{{ fetch.title }}"],
    }


def test_tests_of_plain_values_are_allowed() -> None:
    assert list(nodes_of(flows.plain_questions)) == [
        *("fetch", "fetch_2", "merge", "parse", "fetch_3", "merge_2")
    ]


def test_untraceable_tests_are_found_below_decorators_and_in_indented_code() -> None:
    def logged(function: Callable[[str], Any]) -> Callable[[str], Any]:
        return functools.wraps(function)(lambda url: [function(url)])

    @runnel.workflow
    @logged
    def flow(url: str) -> Any:
        page = flows.fetch("""a text
at the margin""")
        return page if page is None else flows.fetch(url)

    with pytest.raises(
        TraceError, match=r"`return page if page is None .* uses 'is' on the result 'page'"
    ):
        flow.to_workflow()


def test_a_workflow_called_in_a_workflow_becomes_a_child() -> None:
    nodes = nodes_of(flows.parent)

    assert nodes["diamond"].child == nodes["again"].child == read_document(DIAMOND)
    assert nodes["again"].config == {"input": {"url": "{{ input.url }}"}}


def test_node_ids_are_task_names_with_numbers() -> None:
    assert list(nodes_of(flows.names)) == [
        *("fetch", "fetch_2", "load", "input_node", "my-fetch", "merge"),
    ]
    args = nodes_of(flows.names)["merge"].config["args"]
    assert args["right"] == "{{ nodes['my-fetch'] }}"


def test_secrets_stay_names_in_the_workflow() -> None:
    nodes = nodes_of(flows.secrets)

    assert nodes["fetch"].config["args"] == {
        "url": "{{ input.url }}?token={{ secrets.shop_token }}"
    }
    assert nodes["output"].config == {
        "password": '{{ "" if (secrets.none | default(none)) is none else secrets.none }}'
    }
    assert nodes["merge"].dependencies == ("fetch", "output")


def test_the_body_of_a_workflow_runs_once() -> None:
    assert flows.diamond.to_workflow() is flows.diamond.to_workflow()
    assert isinstance(flows.diamond.to_workflow(), Workflow)
    assert get_current_trace() is None


def test_outside_of_a_workflow_a_task_calls_its_function() -> None:
    assert flows.parse("page", depth=2) == ["page", 2]
    assert flows.parse.function("page") == ["page", 1]
    assert flows.parse.__name__ == "parse"
    assert runnel.text("{} {x}", 1, x=2) == "1 2"


def test_attributes_of_a_function_do_not_replace_those_of_its_task() -> None:
    def marked(page: Any) -> Any:
        return page

    vars(marked).update(label="other", handler="other", _options={"id": "other"})

    decorated = runnel.task(marked)

    assert (decorated.label, decorated.handler, decorated._options) == ("marked", "python", {})  # noqa: SLF001  # what a call adds


async def test_outside_of_a_workflow_an_async_task_returns_a_coroutine() -> None:
    assert await typed_flow.fetch.function("x") == {"title": "x", "links": ["x"]}
    assert (await flows.fetch("x"))["title"] == "X"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: flows.diamond("x"),
            "'diamond' is a workflow; run it with diamond.run(...), or with 'await ",
        ),
        (lambda: flows.fetch.map(["x"]), "fetch.map works only inside a @workflow; elsewhere"),
        (lambda: runnel.sleep(3), "sleep: a handler can be called only inside a @workflow"),
        (runnel.item, "runnel.item can be called only in the body of a @workflow"),
        (lambda: runnel.secret("x"), "runnel.secret can be called only in the body of a @workflow"),
        (
            lambda: flows.fetch.when(3),
            "has an invalid condition: fetch.when: expected a comparison",
        ),
        (lambda: flows.fetch.options(timeout=0), "has an invalid option: fetch: timeout: expected"),
        (diamond.run, "diamond(url: str) does not accept this input: missing"),
        (lambda: diamond.run("x", n=1), "got an unexpected keyword argument 'n'"),
        (lambda: flows.diamond.run_options(key=""), "diamond.run_options: key: expected a text"),
    ],
)
def test_functions_for_workflows_explain_a_call_elsewhere(call: Any, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        call()

    assert sentence in str(caught.value)


async def test_running_from_async_code_without_await_is_refused() -> None:
    with pytest.raises(InputError, match=r"write 'await runnel.run\(diamond, ...\)'"):
        flows.diamond.run("x")


@pytest.mark.parametrize("flow", [flows.diamond, flows.maps], ids=["own task", "task of a child"])
def test_a_task_that_a_test_replaces_does_not_stay_in_the_cache(
    flow: DecoratedWorkflow[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = flow.to_workflow()

    with monkeypatch.context() as patch:
        patch.setattr(flows, "scan", flows.scan.options(name="stub"))
        stubbed = flow.to_workflow()

    assert stubbed != before
    assert flow.to_workflow() == before
    assert flow.to_workflow() is flow.to_workflow()


def test_a_task_behind_a_helper_and_a_module_can_be_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = flow_with_helper.to_workflow()

    monkeypatch.setattr(flows, "fetch", flows.fetch.options(name="stub"))

    assert [node.id for node in before.nodes] == ["fetch"]
    assert [node.id for node in flow_with_helper.to_workflow().nodes] == ["stub"]


def fetch_with_helper(url: str) -> Any:
    return flows.fetch(url)


@runnel.workflow
def flow_with_helper(url: str) -> Any:
    return fetch_with_helper(url)


class FetchTasks:
    fetch = flows.fetch

    def call(self, url: str) -> Any:
        return self.fetch(url)


fetch_tasks = FetchTasks()
_counter = itertools.count()
task_table = {"fetch": flows.fetch}


@runnel.workflow
def flow_of_class(url: str) -> Any:
    return FetchTasks.fetch(url)


@runnel.workflow
def flow_of_object(url: str) -> Any:
    return fetch_tasks.fetch(url)


@runnel.workflow
def flow_of_method(url: str) -> Any:
    return fetch_tasks.call(url)


@runnel.workflow
def flow_of_table(url: str) -> Any:
    return task_table["fetch"](url)


@pytest.mark.parametrize("flow", [flow_of_class, flow_of_object, flow_of_method, flow_of_table])
@pytest.mark.parametrize("target", [FetchTasks, fetch_tasks, task_table])
def test_a_task_in_a_class_an_object_or_a_dict_can_be_replaced(
    flow: DecoratedWorkflow[..., Any], target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = flow.to_workflow()
    with monkeypatch.context() as patch:
        stub = flows.fetch.options(name="stub")
        if isinstance(target, dict):
            patch.setitem(target, "fetch", stub)
        else:
            patch.setattr(target, "fetch", stub)
        stubbed = flow.to_workflow()
        # Another retry policy has its own trace, which is not in the cache.
        fresh = flow.to_workflow(retry=RetryPolicy(max_retries=7 + next(_counter)))

    assert [node.id for node in stubbed.nodes] == [node.id for node in fresh.nodes]
    assert flow.to_workflow() == before
    assert flow.to_workflow() is flow.to_workflow()


def test_a_function_that_can_notice_its_soft_timeout_may_have_one() -> None:
    async def on_the_loop() -> None: ...
    def in_a_thread(ctx: Context | None = None) -> None: ...
    def in_a_process() -> None: ...

    tasks: list[Any] = [
        task(soft_timeout=3)(on_the_loop),
        task(soft_timeout=3)(in_a_thread),
        task(soft_timeout=3, mode="process")(in_a_process),
        task(in_a_thread).options(soft_timeout=timedelta(seconds=3)),
    ]

    assert [named.label for named in tasks] == [
        "on_the_loop",
        "in_a_thread",
        "in_a_process",
        "in_a_thread",
    ]
