"""Workflows, their nodes, rules and limits: plain values with a canonical form."""

import functools
import hashlib
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from runnel.core.ids import NO_ITEM, DefinitionHash, NodeId
from runnel.core.retry import RetryPolicy
from runnel.core.states import NodeState
from runnel.core.values import INLINE_BYTES_MAX, SHARED_BYTES_MAX, Json, Value

# -- run_when: whether a node whose parents are all settled runs or is skipped -------------


class RunWhen(StrEnum):
    DEFAULT = "default"
    ALL_COMPLETED = "all_completed"
    NONE_FAILED = "none_failed"
    ALL_SETTLED = "all_settled"
    ONE_FAILED = "one_failed"


CLEAN_UP_RULES = frozenset({RunWhen.ALL_SETTLED, RunWhen.ONE_FAILED})


class SkipReason(StrEnum):
    CONDITION_FALSE = "condition is false"
    PARENTS_SKIPPED = "all parents were skipped"
    DEPENDENCY_FAILED = "dependency failed"
    RULE_NOT_MET = "run_when was not met"
    BY_ITSELF = "its own code skipped it"


class ParentOutcome(StrEnum):
    """The meaning of a settled parent for its children.

    CUT_OFF: a parent that was cancelled after its task was issued. Its code may have had effects,
    so a `one_failed` node cleans up after it. BLOCKED: a parent that never ran because of an
    earlier failure.
    """

    COMPLETED = "completed"
    SKIPPED = "skipped"
    FAILED = "failed"
    CUT_OFF = "cut off"
    BLOCKED = "blocked"


def classify_parent_outcome(
    state: NodeState, attempt: int, reason: SkipReason | None
) -> ParentOutcome:
    if state is NodeState.COMPLETED:
        return ParentOutcome.COMPLETED
    if state is NodeState.FAILED:
        return ParentOutcome.FAILED
    if state is NodeState.CANCELLED:
        return ParentOutcome.CUT_OFF if attempt else ParentOutcome.BLOCKED
    is_blocked = reason is SkipReason.DEPENDENCY_FAILED
    return ParentOutcome.BLOCKED if is_blocked else ParentOutcome.SKIPPED


_FAILED_OUTCOMES = frozenset({ParentOutcome.FAILED, ParentOutcome.CUT_OFF, ParentOutcome.BLOCKED})
_CLEAN_UP_OUTCOMES = frozenset({ParentOutcome.FAILED, ParentOutcome.CUT_OFF})


def apply_run_when(rule: RunWhen, parents: Iterable[ParentOutcome]) -> SkipReason | None:
    """Returns None if the node runs, otherwise why it is skipped.

    A node without parents always runs.
    """
    outcomes = set(parents)
    if not outcomes or rule is RunWhen.ALL_SETTLED:
        return None
    if rule is RunWhen.ONE_FAILED:
        return None if outcomes & _CLEAN_UP_OUTCOMES else SkipReason.RULE_NOT_MET
    if outcomes & _FAILED_OUTCOMES:
        return SkipReason.DEPENDENCY_FAILED
    if rule is RunWhen.ALL_COMPLETED and ParentOutcome.SKIPPED in outcomes:
        return SkipReason.RULE_NOT_MET
    if rule is RunWhen.DEFAULT and ParentOutcome.COMPLETED not in outcomes:
        return SkipReason.PARENTS_SKIPPED
    return None


DEFINITION_FORMAT = 1
TIMEOUT_S_DEFAULT = 300.0
CACHE_TTL_S_DEFAULT = 24 * 3600.0

SLEEP = "sleep"
WAIT_FOR_SIGNAL = "wait_for_signal"
CHILD_WORKFLOW = "workflow"
# These handlers never reach a worker: the core waits for them and settles them.
CORE_HANDLERS = frozenset({SLEEP, WAIT_FOR_SIGNAL, CHILD_WORKFLOW})


class OnFailure(StrEnum):
    FAIL_FAST = "fail_fast"
    CONTINUE = "continue"


class RateLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A token bucket: at most `burst` tokens, refilled at `rate_per_second`."""

    rate_per_second: float = 10.0
    burst: int = 1


class Cache(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Allows a node to reuse the result of an earlier task with the same key, up to `ttl_seconds`.

    Without a `key`, the key covers handler, resolved config and the parents' outputs.
    """

    key: str | None = None
    ttl_seconds: float = CACHE_TTL_S_DEFAULT


class Node(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step. `condition`, `for_each` and `concurrency_key` are expressions or templates."""

    id: NodeId
    handler: str
    config: dict[str, Json] = {}
    dependencies: tuple[NodeId, ...] = ()
    condition: str | None = None
    run_when: RunWhen = RunWhen.DEFAULT
    retry: RetryPolicy = RetryPolicy()
    timeout_seconds: float = TIMEOUT_S_DEFAULT
    soft_timeout_seconds: float | None = None
    resource_tag: str | None = None
    concurrency_key: str | None = None
    concurrency_limit: int = 1
    for_each: str | None = None
    queue: str | None = None
    cache: Cache | None = None
    child: "Workflow | None" = None

    @property
    def task_queue(self) -> str:
        return f"tasks:{self.queue or self.handler}"


class Workflow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A definition without a version. Storing it assigns one."""

    name: str
    nodes: tuple[Node, ...]
    input: dict[str, Json] | None = None
    on_failure: OnFailure = OnFailure.FAIL_FAST
    timeout_seconds: float | None = None
    sla_seconds: float | None = None
    max_concurrency: int | None = None
    rate_limits: dict[str, RateLimit] = {}
    labels: dict[str, str] = {}
    output: Json = None
    format: int = DEFINITION_FORMAT


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(Workflow)


def encode_workflow(workflow: Workflow) -> bytes:
    """Returns the canonical form: equal workflows give equal bytes.

    It decodes the workflow again first, because 50 and 50.0 seconds are the same. It also omits
    values that equal their default, because msgspec omits only those that *are* the default.
    """
    return _encoder.encode(_strip_defaults(_decoder.decode(_encoder.encode(workflow))))


def _strip_defaults(value: Json) -> Json:
    if isinstance(value, tuple):
        return [_strip_defaults(part) for part in value]
    if not isinstance(value, msgspec.Struct):
        return value
    return {
        name: _strip_defaults(field)
        for name, default in _list_defaults(type(value))
        if (field := getattr(value, name)) != default
    }


@functools.cache
def _list_defaults(kind: type[msgspec.Struct]) -> list[tuple[str, object]]:
    """Cached: computing it for every node took half the time of hashing a large workflow."""
    return [
        (
            field.name,
            field.default
            if field.default_factory is msgspec.NODEFAULT
            else field.default_factory(),
        )
        for field in msgspec.structs.fields(kind)
    ]


def decode_workflow(data: bytes) -> Workflow:
    return _decoder.decode(data)


def hash_workflow(workflow: Workflow) -> DefinitionHash:
    return hash_document(encode_workflow(workflow))


def hash_document(document: bytes) -> DefinitionHash:
    """Expects the canonical form that `encode_workflow` returns."""
    return DefinitionHash(hashlib.sha256(document).hexdigest()[:32])


class EnginePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The engine-wide limits for decisions.

    `losses_max` is how many workers may die with one task before it goes to the dead letters.
    `in_flight_max` bounds the issued tasks of one execution, and the items of one map. A value
    above `shared_bytes_max` is offloaded before a map begins, if all items together would carry
    more than `inline_bytes_max` of it.
    """

    losses_max: int = 10
    in_flight_max: int = 1_000
    inline_bytes_max: int = INLINE_BYTES_MAX
    shared_bytes_max: int = SHARED_BYTES_MAX
    map_items_max: int = 1_000_000
    keeps_exhausted_tasks: bool = False
    """Whether tasks without retries left also go to the dead letters (DLQ_POLICY=all)."""


class ReusedResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one node or item that a rerun does not run again.

    It is either its `output`, or why it was skipped; `detail` is then the message of its own code.
    """

    node: NodeId
    item: int = NO_ITEM
    output: Value | None = None
    skip: SkipReason | None = None
    detail: str = ""
