"""The options of a rerun, and the commands that create it."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from runnel.authoring.builder import STEP_HANDLER
from runnel.authoring.payloads import encode_payload
from runnel.client.idempotency import remove_key_labels
from runnel.client.values import PayloadStorage
from runnel.core.commands import Command, CreateExecution, StartExecution, TakeOver
from runnel.core.execution import Execution
from runnel.core.graph import Graph
from runnel.core.ids import ExecutionId, NodeId
from runnel.core.message_text import (
    describe_value,
    escape_unprintable,
    quote_name,
    suggest_or_list_names,
)
from runnel.core.rerun import select_reused_results
from runnel.core.states import ExecutionState
from runnel.core.validation import find_problems
from runnel.core.values import Json
from runnel.core.workflow import CORE_HANDLERS, ReusedResult
from runnel.errors import InputError, InvalidWorkflowError, WrongStateError
from runnel.ports.store import NO_BLOBS

# Limits of one command of a rerun and of its blobs. A command is one message and one history entry.
PART_BYTES_MAX = 256 * 1024
PART_BLOB_BYTES_MAX = 8 * 1024 * 1024
# The number of messages that are sent together. Each message has a few hundred kilobytes at most.
MESSAGES_PER_PAGE = 16

_encode = msgspec.json.encode


class RerunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a rerun.

    A rerun runs the nodes that did not complete, the nodes in `again`, and all nodes that depend on
    them. With `is_whole`, it runs every node. If `again` is empty, a rerun of a completed execution
    or with another input also runs every node. `configs` replace the configs of nodes. With
    `is_newest`, the rerun uses the newest version of the workflow, and also runs the nodes that
    have changed.
    """

    again: Sequence[str] = ()
    is_whole: bool | None = None
    is_newest: bool = False
    configs: Mapping[str, Json] = {}


class RerunClient(Protocol):
    """The methods of a client that bulk commands and retries of dead letters use."""

    async def load(self, execution_id: ExecutionId) -> Execution: ...

    async def rerun(
        self,
        execution_id: ExecutionId,
        options: RerunSpec | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> ExecutionId: ...


# The label of a rerun with another input than the execution that it reruns. Such a rerun does other
# work, so it does not replace the dead letters of that execution.
NEW_INPUT_LABEL = "runnel.new_input"


def check_rerunnable(former: Execution) -> None:
    """Raises WrongStateError if the execution is a child, is not final, or has steps of a program.

    The steps of a WorkflowExecutor are functions of the process that runs it.
    """
    step = next(
        (item.node.id for item in former.graph.nodes if item.node.handler == STEP_HANDLER), None
    )
    if step is not None:
        raise WrongStateError(
            f"execution {former.id} can't be rerun: its step '{step}' is a function of the program "
            "that ran it with WorkflowExecutor, and no other process can call it; run the program "
            "again, or write the workflow with @workflow"
        )
    if former.parent is not None:
        raise WrongStateError(
            f"execution {former.id} is a child and can't be rerun on its own; rerun its parent "
            f"{former.parent.execution_id} from node '{former.parent.node_id}'"
        )
    if not former.is_final:
        raise WrongStateError(
            f"execution {former.id} is {former.state}, but only a final execution can be rerun; "
            "wait until it ends, or cancel it"
        )


def build_labels(former: Execution, *, is_same_input: bool) -> dict[str, str]:
    """Returns the labels of a rerun without those that belong to one execution."""
    labels = remove_key_labels(former.labels)
    labels.pop(NEW_INPUT_LABEL, None)
    return labels if is_same_input else {**labels, NEW_INPUT_LABEL: "true"}


def is_whole_rerun(options: RerunSpec, state: ExecutionState, *, has_input: bool) -> bool:
    """Returns True if a rerun of an execution in this final state runs every node."""
    if options.is_whole is not None:
        return options.is_whole
    is_selective = bool(options.again or options.configs)
    return not is_selective and (has_input or state is ExecutionState.COMPLETED)


def build_take_overs(
    former: Execution,
    graph: Graph,
    options: RerunSpec,
    execution_id: ExecutionId,
    *,
    has_input: bool,
    mocks_services: bool = False,
) -> list[TakeOver]:
    """Returns the commands that copy reused results to a rerun; raises InputError."""
    again = [*options.again, *options.configs]
    unknown = next((name for name in again if name not in graph.index), None)
    if unknown is not None:
        raise InputError(
            f"workflow {quote_name(graph.workflow.name)} has no node "
            f"'{escape_unprintable(unknown)}'"
            f"{suggest_or_list_names(unknown, graph.index)}"
        )
    configs = _validate_configs(graph, options.configs, mocks_services=mocks_services)
    if is_whole_rerun(options, former.state, has_input=has_input):
        return [TakeOver(execution_id=execution_id, configs=configs)] if configs else []
    names = [NodeId(name) for name in again]
    taken = select_reused_results(former, graph, nodes_to_rerun=names, is_same_input=not has_input)
    parts = [
        TakeOver(execution_id=execution_id, part=number, taken=part)
        for number, part in enumerate(_split_parts(taken), start=1)
    ]
    edited = [TakeOver(execution_id=execution_id, configs=configs)] if configs else []
    return [*edited, *parts]


async def iter_command_pages(
    command: CreateExecution,
    parts: Sequence[TakeOver],
    payloads: PayloadStorage,
    blobs: Mapping[str, bytes],
) -> AsyncIterator[tuple[Sequence[Command], Mapping[str, bytes]]]:
    """Yields the messages of a rerun in pages, with their blobs; `blobs` are those of `command`."""
    page: list[Command] = [command]
    for part in parts:
        command_part, part_blobs = await _copy_blobs(part, payloads)
        page.append(command_part)
        blobs = {**blobs, **part_blobs}
        if len(page) == MESSAGES_PER_PAGE or sum(map(len, blobs.values())) > PART_BLOB_BYTES_MAX:
            yield page, blobs
            page, blobs = [], NO_BLOBS
    if parts:
        page.append(StartExecution(execution_id=command.execution_id, parts=len(parts)))
    yield page, blobs


async def _copy_blobs(
    part: TakeOver, payloads: PayloadStorage
) -> tuple[TakeOver, Mapping[str, bytes]]:
    """Copies large outputs to new blobs. Returns the command with the new keys, and the blobs."""
    taken: list[ReusedResult] = []
    blobs: dict[str, bytes] = {}
    for result in part.taken:
        if result.output is None or result.output.blob is None:
            taken.append(result)
            continue
        value, copied = await payloads.copy_value(result.output, part.execution_id)
        taken.append(msgspec.structs.replace(result, output=value))
        blobs.update(copied)
    return msgspec.structs.replace(part, taken=taken), blobs


def _split_parts(taken: Iterator[ReusedResult]) -> Iterator[list[ReusedResult]]:
    part: list[ReusedResult] = []
    size = blob_size = 0
    for result in taken:
        added, added_blob = len(_encode(result)), _get_blob_size(result)
        if part and (size + added > PART_BYTES_MAX or blob_size + added_blob > PART_BLOB_BYTES_MAX):
            yield part
            part, size, blob_size = [], 0, 0
        part.append(result)
        size, blob_size = size + added, blob_size + added_blob
    if part:
        yield part


def _get_blob_size(taken: ReusedResult) -> int:
    return taken.output.size if taken.output is not None and taken.output.blob is not None else 0


def _validate_configs(
    graph: Graph, configs: Mapping[str, Json], *, mocks_services: bool
) -> dict[NodeId, msgspec.Raw]:
    """Returns the encoded configs.

    Raises InvalidWorkflowError if the workflow is invalid with them.
    """
    if not configs:
        return {}
    nodes = []
    for node in graph.workflow.nodes:
        if node.id in configs and node.handler in CORE_HANDLERS:
            raise InputError(
                f"node '{node.id}': a rerun can't replace the config of a '{node.handler}' node, "
                "because no worker runs it"
            )
        given = configs.get(node.id, node.config)
        if not isinstance(given, dict):
            raise InputError(
                f"node '{node.id}': expected a config that is a JSON object, got "
                f"{describe_value(given)}"
            )
        nodes.append(msgspec.structs.replace(node, config=given))
    changed = msgspec.structs.replace(graph.workflow, nodes=tuple(nodes))
    problems = find_problems(changed, mocks_services=mocks_services)
    if problems:
        raise InvalidWorkflowError(problems, source=f"workflow {quote_name(changed.name)}")
    return {
        NodeId(name): msgspec.Raw(encode_payload(config, where=f"the config of '{name}'"))
        for name, config in configs.items()
    }
