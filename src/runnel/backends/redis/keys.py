"""Every key that Runnel has in Redis, the layout of a store, and the codecs of its values.

No other module spells a key.

A key carries its shard's hash tag, so that all that one script touches lives on one server. A
name that ends in a colon is a prefix: the partition's number, or a name, is put behind it. Names
come last because they may hold anything, and Redis looks at the first braces only.
"""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from runnel.backends.mailboxes import route_by_hash
from runnel.backends.redis.connection_pool import RedisConnectionPool
from runnel.core.codec import encode_message
from runnel.core.commands import Command, CreateExecution, TaskFailed, TaskLost
from runnel.core.effects import TaskMessage, TimerKey
from runnel.core.ids import NO_ITEM, ExecutionId, NodeId, Nonce, TaskToken
from runnel.core.retry import ErrorInfo
from runnel.errors import InputError
from runnel.ports.store import make_pending_header


class RedisKeyNames:
    """The keys of one shard."""

    def __init__(self, prefix: str, shard: int = 0) -> None:
        tag = f"{prefix}:{{s{shard}}}:"
        # hash: shards, partitions, and of a store with an archive: incarnation (its name),
        # identity (the name of this store)
        self.layout = tag + "layout"

        # -- of a partition
        # hash: owner, epoch, nonce, counter, sequence, cursor; verified, life: see rescue
        self.partition = tag + "partition:"
        # stream: m = the message as `codec` wrote it
        self.inbox = tag + "inbox:"
        # sorted set: timer key by due time; hash: timer key to the attempt it was set for
        self.timers = tag + "timers:"
        self.attempts = tag + "attempts:"
        # sorted set: RUNNING executions by created_at
        self.running = tag + "running:"
        # set: concurrency keys that have a history
        self.limits = tag + "limits:"
        # stream by sequence: h<aggregate> = entry, x = header, c = closed aggregate, d = letter
        self.journal = tag + "journal:"
        # sorted sets: final executions by the sequence that made them so, roots and children
        self.ended = tag + "ended:"
        self.ended_children = tag + "ended-below:"

        # hash: orchestrator to the number of its last sign of life
        self.orchestrators = tag + "orchestrators"

        # stream: c = what one commit or submit has changed, see feed_entries
        self.feed = tag + "feed"

        # -- of an aggregate
        # list: its entries, oldest first
        self.history = tag + "history:"

        # -- of what lasts
        # hash: execution id to header; sorted sets: ids by created_at, and ids by name
        self.headers = tag + "headers"
        self.ids_by_created_at = tag + "listed"
        self.ids = tag + "ids"
        # stream per queue of dead letters; set: the queues that have one
        self.letters = tag + "dlq:"
        self.letter_queues = tag + "dlqs"
        # hash per content hash: name, version, document; hash: name to its last version; list per
        # name: the content hash of each version, newest first; hash: name to its last deleted one
        self.definition = tag + "definition:"
        self.versions = tag + "versions"
        self.versions_of = tag + "versions-of:"
        self.deleted_versions = tag + "deleted-versions"
        # of a kind of records: hash of key to "<revision> <data>", sorted set of keys by name; and
        # the revision that was given last
        self.records = tag + "records:"
        # sorted set per caller of the API: its requests of the last while, by time
        self.window = tag + "window:"
        self.record_names = tag + "record-names:"
        self.revisions = tag + "revisions"
        # string per blob; sorted set: their keys by name
        self.blob = tag + "blob:"
        self.blobs = tag + "blobs"
        self._set_task_keys(tag)

    def _set_task_keys(self, tag: str) -> None:
        """Of tasks and workers."""
        # set: every queue that had a task lately
        self.queues = tag + "queues"
        # hash: worker that waits for tasks to "<how many at most> <starts>", and the names of its
        # queues with a line feed before and behind each; without any, it takes those of all
        self.waiting = tag + "waiting"
        # channel per worker that waits: "<server's time> " and a list of the tasks that a commit
        # hands to it
        self.push_channel = tag + "hand:"
        # stream per queue, of tasks that nobody has claimed: t = token, p = partition, b = task
        self.tasks = tag + "tasks:"
        # hash: token to where it is, for every task that is queued or claimed:
        # "q<entry id> <queue>" or "w<worker>"
        self.task_locations = tag + "out"
        # hash per worker: token to "<partition> <started><beats missed>"
        self.held = tag + "held:"
        # stream per worker: t = token it holds that was dropped
        self.dropped = tag + "dropped:"
        # hash: worker to the number of its last sign of life; the number that was given last
        self.workers = tag + "workers"
        self.heartbeat_counter = tag + "signs"
        # set: workers that are to end
        self.drained = tag + "drained"
        # hash: worker to "<time of its last beat> <what it says of itself>"; stream of the last
        # that were found dead: w = worker, a = the same
        self.about = tag + "about"
        self.dead = tag + "dead"
        # string per cache key: an output, gone when its time is over
        self.result = tag + "result:"
        # string per tag, gone when the bucket is full: the time at which it will be
        self.bucket = tag + "bucket:"


# -- layout: the number of partitions, set when the store is first opened ----------------------

SHARDS = 1
# What adopt.lua answers.
INBOX_NOT_EMPTY = 2
NO_MESSAGES: Mapping[int, str] = MappingProxyType({})
PARTITIONS_DEFAULT = 16


class RedisLayout(msgspec.Struct, frozen=True):
    partitions: int
    incarnation: str = ""
    """Names the archive that belongs to this store; empty for a store without one."""

    @property
    def is_journaled(self) -> bool:
        return self.incarnation != ""

    def route(self, aggregate_id: str) -> int:
        return route_by_hash(aggregate_id, self.partitions)


async def open_layout(
    pool: RedisConnectionPool, keys: RedisKeyNames, partitions: int | None
) -> RedisLayout:
    """Raises InputError when the store is divided otherwise than `partitions` says."""
    partitions_if_new = PARTITIONS_DEFAULT if partitions is None else partitions
    shards, stored, incarnation = await pool.run_script(
        "open", [keys.layout], [SHARDS, partitions_if_new]
    )
    _check_shards(int(shards))
    if partitions not in (None, int(stored)):
        raise InputError(
            f"the store has {int(stored)} partitions, which can't be changed; expected {partitions}"
        )
    return RedisLayout(int(stored), (incarnation or b"").decode())


async def find_layout(pool: RedisConnectionPool, keys: RedisKeyNames) -> RedisLayout | None:
    """That of a store with an archive; None for any other."""
    partitions, incarnation = await pool.call("HMGET", keys.layout, "partitions", "incarnation")
    return None if incarnation is None else RedisLayout(int(partitions), incarnation.decode())


async def find_identity(
    pool: RedisConnectionPool, keys: RedisKeyNames
) -> tuple[str | None, str | None]:
    """The archive that it belongs to, and the store's own name; None for what it does not have."""
    incarnation, identity = await pool.call("HMGET", keys.layout, "incarnation", "identity")
    return _decode_optional(incarnation), _decode_optional(identity)


async def adopt_layout(
    pool: RedisConnectionPool,
    keys: RedisKeyNames,
    layout: RedisLayout,
    *,
    identity: str,
    replaced_identity: str | None = None,
    recorded: Mapping[int, str] = NO_MESSAGES,
) -> str | None:
    """Gives an empty store the layout of its archive; raises InputError for any other than that.

    Empty is one that nobody has decided for, and whose inboxes hold nothing but what is `recorded`,
    by partition up to which message: it is removed. None, and nothing is done, if they hold more.

    Returns the name of the store: the one that it had, or `identity` if it had none. One that it
    had is replaced if it is `replaced_identity` ('' is none).
    """
    reply = await pool.run_script(
        "adopt",
        [keys.layout, keys.partition, keys.inbox],
        [
            *(SHARDS, layout.partitions, layout.incarnation, identity),
            *(replaced_identity or "", int(replaced_identity is not None)),
            *(part for number, last in recorded.items() for part in (number, last)),
        ],
    )
    if reply == INBOX_NOT_EMPTY:
        return None
    if not reply:
        raise InputError(
            "this Redis holds executions that were never archived, the archive belongs to another "
            "one: name an empty Redis, or another REDIS_PREFIX"
        )
    shards, partitions, incarnation, name = reply
    _check_shards(int(shards))
    if incarnation.decode() != layout.incarnation:
        raise InputError(
            f"this Redis belongs to the archive '{incarnation.decode()}', PostgreSQL is "
            f"'{layout.incarnation}': name the two that belong together, or an empty Redis, which "
            "is then filled from the archive"
        )
    if int(partitions) != layout.partitions:
        raise InputError(
            f"Redis has {int(partitions)} partitions, its archive {layout.partitions}: "
            "one of them is a copy of another store"
        )
    return str(name.decode())


def _decode_optional(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def _check_shards(shards: int) -> None:
    if shards != SHARDS:
        raise InputError(f"the store has {shards} shards, this Runnel knows stores of {SHARDS}")


# -- codecs: JSON, and never through Lua's -----------------------------------------------------

_encoder = msgspec.json.Encoder()
_token_decoder = msgspec.json.Decoder(TaskToken)
_task_decoder = msgspec.json.Decoder(TaskMessage)
_task_list_decoder = msgspec.json.Decoder(list[TaskMessage])
_timer_key_decoder = msgspec.json.Decoder(TimerKey)

encode = _encoder.encode
decode_token = _token_decoder.decode
decode_task = _task_decoder.decode
decode_tasks = _task_list_decoder.decode
decode_timer_key = _timer_key_decoder.decode

_PLACEHOLDER_TOKEN = TaskToken(ExecutionId("\0"), NodeId(""), NO_ITEM, 0, Nonce(""))


def split_lost_message(reason: str, *, is_crash: bool = True) -> tuple[bytes, bytes, bytes]:
    """The message TaskLost up to its token, and its rest if the task was started, and if not.

    A script puts the token between: so it makes a message without knowing what one looks like.
    Unless it `is_crash`, the rest is the same: an end in good order counts towards no crash loop.
    """
    not_started = encode_message(TaskLost(token=_PLACEHOLDER_TOKEN, reason=reason))
    started = encode_message(
        TaskLost(token=_PLACEHOLDER_TOKEN, reason=reason, was_started=is_crash)
    )
    before, _, after = not_started.partition(encode(_PLACEHOLDER_TOKEN))
    return before, started.partition(encode(_PLACEHOLDER_TOKEN))[2], after


def split_failed_message(error: ErrorInfo) -> tuple[bytes, bytes]:
    """The message TaskFailed up to its token, and its rest."""
    message = encode_message(TaskFailed(token=_PLACEHOLDER_TOKEN, error=error))
    before, _, after = message.partition(encode(_PLACEHOLDER_TOKEN))
    return before, after


def build_message_args(partition: int, command: Command) -> tuple[str | bytes | int | float, ...]:
    """As `send.lua` and `commit.lua` take it."""
    body = encode_message(command)
    if isinstance(command, CreateExecution):
        header = encode(make_pending_header(command))
        return partition, body, command.execution_id, header, repr(command.created_at)
    return partition, body, "", "", ""
