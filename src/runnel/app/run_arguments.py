"""Resolves what a call of `run` or `submit` names: the workflow, its options and its input."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from runnel.authoring.builder import WorkflowDAG
from runnel.authoring.decorators.source_location import locate_user_code
from runnel.authoring.decorators.trace import get_current_trace
from runnel.authoring.decorators.workflow import TracedWorkflow
from runnel.authoring.functions import (
    MAIN_MODULE_PREFIX,
    SOURCE_LABEL,
    find_import_folder,
    get_main_module_name,
)
from runnel.authoring.payloads import RESERVED_LABEL_PREFIX
from runnel.core.message_text import describe_value, quote_name
from runnel.core.values import Json
from runnel.core.workflow import Workflow
from runnel.errors import InputError
from runnel.settings import override_settings, read_settings
from runnel.settings.model import Settings

RunnableWorkflow: TypeAlias = TracedWorkflow[..., Any] | Workflow | WorkflowDAG


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of a decorated workflow.

    `key` names one execution of the workflow: another run with the same key returns its result, or
    resumes it. `data_dir` selects the embedded engine even if servers are set. `data_dir` and
    `concurrency` default to the settings.
    """

    key: str | None = None
    data_dir: Path | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    concurrency: int | None = None
    priority: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSource:
    """A workflow to run, with its own options."""

    workflow: Workflow
    labels: Mapping[str, str]
    priority: int | None
    key: str | None
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class RunArguments(RunSource):
    input: Json


def build_run_arguments(
    workflow: RunnableWorkflow,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    settings: Settings | None = None,
) -> RunArguments:
    """Returns the arguments of an execution; `settings` are those of an open engine, if any."""
    source = resolve_source(workflow, settings)
    if isinstance(workflow, TracedWorkflow):
        value = workflow.bind(args, kwargs)
    else:
        value = _merge_input(source.workflow.name, args, kwargs)
    return RunArguments(
        workflow=source.workflow,
        input=value,
        labels=source.labels,
        priority=source.priority,
        key=source.key,
        settings=source.settings,
    )


def resolve_source(workflow: RunnableWorkflow, settings: Settings | None = None) -> RunSource:
    """Returns the workflow with its options; raises InputError if it can't be run from here."""
    trace = get_current_trace()
    if trace is not None:
        raise locate_user_code().build_error(
            f"runs a workflow inside the body of '{trace.name}'; call the workflow like a task"
        )
    options = get_run_options(workflow)
    settings = resolve_settings(options) if settings is None else settings
    labels = copy_own_labels(options.labels)
    if isinstance(workflow, TracedWorkflow):
        model = workflow.to_workflow(retry=settings.retry)
        labels = {**_build_source_label(workflow), **labels}
        _check_importable(model, settings)
    else:
        model = (
            workflow if isinstance(workflow, Workflow) else _build_dag_workflow(workflow, settings)
        )
    return RunSource(
        workflow=model,
        labels=labels,
        priority=options.priority,
        key=options.key,
        settings=settings,
    )


def get_run_options(workflow: RunnableWorkflow) -> RunOptions:
    options = getattr(workflow, "_run_options", None)
    return options if isinstance(options, RunOptions) else RunOptions()


def resolve_settings(options: RunOptions) -> Settings:
    settings = override_settings(read_settings(), worker_concurrency=options.concurrency)
    return settings if options.data_dir is None else select_data_dir(settings, options.data_dir)


def select_data_dir(settings: Settings, data_dir: Path) -> Settings:
    """Returns the settings with a data directory instead of servers."""
    without = {"redis_url": None, "redis_host": None}
    return msgspec.structs.replace(settings, data_dir=data_dir, **without)


def copy_own_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Returns a copy of the user's labels; raises InputError for a reserved name."""
    for key in labels:
        if key.startswith(RESERVED_LABEL_PREFIX):
            raise InputError(
                f"labels: {quote_name(key)} begins with '{RESERVED_LABEL_PREFIX}', which is "
                "reserved for Runnel; rename the label"
            )
    return dict(labels)


def _merge_input(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the input of a workflow without a signature; raises InputError."""
    given = args[0] if args else {}
    if len(args) > 1 or not isinstance(given, Mapping | None):
        found = f"{len(args)} values" if len(args) > 1 else describe_value(given)
        raise InputError(
            f"workflow {quote_name(name)}: expected its input as one object, such as "
            f'{{"user": "Ada"}}, or as names, such as user="Ada"; got {found}'
        )
    twice = sorted(str(key) for key in given or () if key in kwargs)
    if twice:
        raise InputError(f"workflow {quote_name(name)}: {quote_name(twice[0])} is given twice")
    return {**(given or {}), **kwargs}


def _build_dag_workflow(dag: WorkflowDAG, settings: Settings) -> Workflow:
    if dag.steps:
        raise InputError(
            f"step '{next(iter(dag.steps))}' is a function of this process, which runnel.run can't "
            "run: write 'await WorkflowExecutor().execute(dag, ...)', or use add_node"
        )
    return dag.to_workflow(retry=settings.retry)


def _build_source_label(workflow: TracedWorkflow[..., Any]) -> dict[str, str]:
    module = workflow.function.__module__
    folder = find_import_folder(
        (get_main_module_name() or module) if module == "__main__" else module
    )
    return {} if folder is None else {SOURCE_LABEL: str(folder)}


def _check_importable(workflow: Workflow, settings: Settings) -> None:
    if not settings.has_redis:
        return
    for node in workflow.nodes:
        if str(node.config.get("function", "")).startswith(MAIN_MODULE_PREFIX):
            raise InputError(
                f"node '{node.id}': its function was defined in an interactive session, which the "
                "workers of a server can't import; put it into a file"
            )
