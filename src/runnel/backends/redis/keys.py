"""All key names that Runnel uses in Redis, the layout of a store, and the codecs of its values.

No other module contains a key name.

Every key contains the hash tag of its shard, so that all keys of one script are on one server. A
key name that ends with a colon is a prefix, to which a partition number or a name is appended. Such
names come last, because they can contain any character, and Redis reads the hash tag from the first
braces.
"""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from runnel.backends.mailboxes import route_by_hash
from runnel.backends.redis.connection_pool import RedisConnectionPool
from runnel.core.codec import encode_message
from runnel.core.commands import Command, CreateExecution, TaskFailed, TaskLost, TaskStopped
from runnel.core.effects import TaskMessage, TimerKey
from runnel.core.ids import NO_ITEM, ExecutionId, NodeId, Nonce, TaskToken
from runnel.core.retry import ErrorInfo
from runnel.errors import InputError
from runnel.ports.store import make_pending_header


class RedisKeyNames:
    """The key names of one shard."""

    def __init__(self, prefix: str, shard: int = 0) -> None:
        tag = f"{prefix}:{{s{shard}}}:"
        # hash: shards, partitions; with an archive also: incarnation (the name of the archive),
        # identity (the name of this Redis)
        self.layout = tag + "layout"

        # -- per partition
        # hash: owner, epoch, nonce, counter, sequence, cursor; for verified and life, see
        # redis_postgres/restore.py
        self.partition = tag + "partition:"
        # stream: m = the message as encoded by `codec`
        self.inbox = tag + "inbox:"
        # sorted set: timer keys by due time; hash: timer key to the attempt that set it
        self.timers = tag + "timers:"
        self.attempts = tag + "attempts:"
        # sorted set: RUNNING executions by created_at
        self.running = tag + "running:"
        # set: concurrency keys that have a history
        self.limits = tag + "limits:"
        # stream by sequence: h<aggregate> = entry, x = header, c = closed aggregate, d = letter
        self.journal = tag + "journal:"
        # sorted sets: final roots and final children, by the sequence of the commit that ended them
        self.ended = tag + "ended:"
        self.ended_children = tag + "ended-below:"

        # hash: orchestrator to the number of its last heartbeat
        self.orchestrators = tag + "orchestrators"

        # stream: c = the changes of one commit or submit, see feed_log.py
        self.feed = tag + "feed"

        # -- per aggregate
        # list: history entries, oldest first
        self.history = tag + "history:"
        self._set_archive_keys(tag)
        self._set_task_keys(tag)

    def list_execution_keys(self, partition: int) -> list[str]:
        """Returns the keys that the Lua function `forget_executions` takes as KEYS."""
        return [
            f"{self.partition}{partition}",
            *(self.headers, self.ids_by_created_at, self.ids),
            *(f"{self.ended}{partition}", f"{self.ended_children}{partition}"),
            *(self.blobs, f"{self.running}{partition}", self.history, self.blob),
        ]

    def _set_archive_keys(self, tag: str) -> None:
        """Sets the key names of executions, definitions, records and blobs."""
        # hash: execution id to header; sorted sets: ids by created_at, and ids by name
        self.headers = tag + "headers"
        self.ids_by_created_at = tag + "listed"
        self.ids = tag + "ids"
        # one stream of dead letters per queue; set: the queues that have such a stream
        self.letters = tag + "dlq:"
        self.letter_queues = tag + "dlqs"
        # one hash per content hash: name, version, document; hash: name to its last version; one
        # list per name: the content hash of each version, newest first; hash: name to its last
        # deleted version
        self.definition = tag + "definition:"
        self.versions = tag + "versions"
        self.versions_of = tag + "versions-of:"
        self.deleted_versions = tag + "deleted-versions"
        # per kind of records: a hash of key to "<revision> <data>", and a sorted set of keys by
        # name; and the last revision that was assigned
        self.records = tag + "records:"
        self.record_names = tag + "record-names:"
        self.revisions = tag + "revisions"
        # one sorted set per caller of the API: its requests within the rate window, by time
        self.window = tag + "window:"
        # one string per blob; sorted set: the keys of all blobs, by name
        self.blob = tag + "blob:"
        self.blobs = tag + "blobs"

    def _set_task_keys(self, tag: str) -> None:
        """Sets the key names of tasks and workers."""
        # set: every queue that had a task recently
        self.queues = tag + "queues"
        # hash: waiting worker to "<maximum tasks> <starts>", followed by the names of its queues,
        # each between line feeds; without names, the worker takes tasks of all queues
        self.waiting = tag + "waiting"
        # one channel per waiting worker: "<server time> " and the list of tasks that a commit
        # pushes to it
        self.push_channel = tag + "hand:"
        # one sorted set per queue and lane, of unclaimed tasks in the order of claims: all scores
        # are 0, members are "<sort key>\n<token>\n<partition> <task>"; see `build_task_args`
        self.lanes = tag + "lane:"
        # one sorted set per queue: its lanes by turn; string: the last turn that was assigned
        self.turns = tag + "turns:"
        self.last_turn = tag + "turn"
        # one sorted set per queue: the tokens of its unclaimed tasks by the time of arrival, in
        # milliseconds
        self.arrivals = tag + "arrivals:"
        # one stream per queue, of unclaimed tasks that an earlier version queued: the field t has
        # the token, p the partition, b the task
        self.tasks = tag + "tasks:"
        # hash: token to the location of the task, for every queued or claimed task: "l<partition>
        # <length of queue> <length of lane> <queue><lane><sort key>", "q<entry id> <queue>" for a
        # task in a stream, or "w<worker>"
        self.task_locations = tag + "out"
        # one hash per worker: token to "<partition> <started><heartbeats missed>"
        self.held = tag + "held:"
        # one stream per worker: t = token of a held task that was dropped
        self.dropped = tag + "dropped:"
        # hash: worker to the number of its last heartbeat; string: the last number that was
        # assigned
        self.workers = tag + "workers"
        self.heartbeat_counter = tag + "signs"
        # set: workers that were asked to drain
        self.drained = tag + "drained"
        # hash: worker to "<time of its last heartbeat> <encoded WorkerInfo>"; stream of the last
        # dead workers: w = worker, a = the same value
        self.about = tag + "about"
        self.dead = tag + "dead"
        # one string per cache key: an output that expires
        self.result = tag + "result:"
        # one string per tag: the time when the bucket is full again; expires at that time
        self.bucket = tag + "bucket:"


# -- layout: the number of partitions, set when the store is opened for the first time ----------

SHARDS = 1
# A reply of adopt_store.lua.
INBOX_NOT_EMPTY = 2
NO_MESSAGES: Mapping[int, str] = MappingProxyType({})
PARTITIONS_DEFAULT = 16


class RedisLayout(msgspec.Struct, frozen=True):
    partitions: int
    incarnation: str = ""
    """The name of the archive of this store; empty for a store without an archive."""

    @property
    def is_journaled(self) -> bool:
        return self.incarnation != ""

    def route(self, aggregate_id: str) -> int:
        return route_by_hash(aggregate_id, self.partitions)


async def open_layout(
    pool: RedisConnectionPool, keys: RedisKeyNames, partitions: int | None
) -> RedisLayout:
    """Returns the stored layout. In a new store, first stores the given layout.

    Raises InputError if the stored number of partitions is not `partitions`.
    """
    partitions_if_new = PARTITIONS_DEFAULT if partitions is None else partitions
    shards, stored, incarnation = await pool.run_script(
        "open_layout", [keys.layout], [SHARDS, partitions_if_new]
    )
    _check_shards(int(shards))
    if partitions not in (None, int(stored)):
        raise InputError(
            f"the store has {int(stored)} partitions, which can't be changed; expected {partitions}"
        )
    return RedisLayout(int(stored), (incarnation or b"").decode())


async def find_layout(pool: RedisConnectionPool, keys: RedisKeyNames) -> RedisLayout | None:
    """Returns the layout of a store with an archive; None for a store without an archive."""
    partitions, incarnation = await pool.call("HMGET", keys.layout, "partitions", "incarnation")
    return None if incarnation is None else RedisLayout(int(partitions), incarnation.decode())


async def find_identity(
    pool: RedisConnectionPool, keys: RedisKeyNames
) -> tuple[str | None, str | None]:
    """Returns the names of the archive and of this Redis; each is None if it is not stored."""
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
    """Stores the layout of the archive in an empty store, and returns the name of the store.

    A store is empty if no commit was written and its inboxes hold only messages that the archive
    has recorded. `recorded` maps a partition to the last recorded message; the recorded messages
    are removed. Returns None and changes nothing if an inbox holds further messages.

    A store without a name gets the name `identity`. A store with the name `replaced_identity` also
    gets the name `identity`; '' stands for no name. Any other store keeps its name. Raises
    InputError if the store is paired with another archive, or holds executions that were never
    archived.
    """
    reply = await pool.run_script(
        "adopt_store",
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
            "this Redis holds executions that were never archived, and the archive belongs to "
            "another Redis: choose an empty Redis or another REDIS_PREFIX"
        )
    shards, partitions, incarnation, name = reply
    _check_shards(int(shards))
    if incarnation.decode() != layout.incarnation:
        raise InputError(
            f"this Redis belongs to the archive '{incarnation.decode()}', but PostgreSQL holds "
            f"'{layout.incarnation}': choose the two that belong together, or an empty Redis, "
            "which Runnel then fills from the archive"
        )
    if int(partitions) != layout.partitions:
        raise InputError(
            f"Redis has {int(partitions)} partitions, and its archive {layout.partitions}: "
            "one of them is a copy of another store"
        )
    return str(name.decode())


def _decode_optional(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def _check_shards(shards: int) -> None:
    if shards != SHARDS:
        raise InputError(f"the store has {shards} shards, this Runnel supports {SHARDS}")


# -- codecs of JSON values, which Lua scripts never encode or decode ----------------------------

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


def split_lost_message(reason: str, *, is_crash: bool = True) -> tuple[bytes, ...]:
    """Splits the message TaskLost at its token.

    Returns the text before the token, and three texts after the token: for the only started task of
    a worker, for one of several started tasks, and for a task that was not started. A Lua script
    inserts the token between these texts, so the script need not know the format. Without
    `is_crash` all endings are equal, because a regular shutdown does not count towards a crash
    loop.
    """
    token = encode(_PLACEHOLDER_TOKEN)
    before = encode_message(TaskLost(token=_PLACEHOLDER_TOKEN, reason=reason)).partition(token)[0]
    flags = ((is_crash, is_crash), (is_crash, False), (False, False))
    lost = (
        TaskLost(token=_PLACEHOLDER_TOKEN, reason=reason, was_started=started, was_alone=alone)
        for started, alone in flags
    )
    return before, *(encode_message(message).partition(token)[2] for message in lost)


def split_failed_message(error: ErrorInfo) -> tuple[bytes, bytes]:
    """Returns the text of the message TaskFailed before its token, and the text after its token."""
    message = encode_message(TaskFailed(token=_PLACEHOLDER_TOKEN, error=error))
    before, _, after = message.partition(encode(_PLACEHOLDER_TOKEN))
    return before, after


def split_stopped_message() -> tuple[bytes, bytes]:
    """Returns the text of the message TaskStopped before its token, and the text after it."""
    message = encode_message(TaskStopped(token=_PLACEHOLDER_TOKEN))
    before, _, after = message.partition(encode(_PLACEHOLDER_TOKEN))
    return before, after


def build_message_args(partition: int, command: Command) -> tuple[str | bytes | int | float, ...]:
    """Returns the arguments of one message for `send_messages.lua` and `commit.lua`."""
    body = encode_message(command)
    if isinstance(command, CreateExecution):
        header = encode(make_pending_header(command))
        return partition, body, command.execution_id, header, repr(command.created_at)
    return partition, body, "", "", ""
