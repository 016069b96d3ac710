"""The map of every key that Runnel has in Redis: no other place spells one.

A key carries its shard's hash tag, so that all that one script touches lives on one server. A
name that ends in a colon is a prefix: the partition's number, or a name, is put behind it. Names
come last because they may hold anything, and Redis looks at the first braces only.
"""


class Keys:
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
        self.ended_below = tag + "ended-below:"

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
        self.listed = tag + "listed"
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
        self._name_tasks(tag)

    def _name_tasks(self, tag: str) -> None:
        """Of tasks and workers."""
        # set: every queue that had a task lately
        self.queues = tag + "queues"
        # hash: worker that waits for tasks to "<how many at most> <starts>", and the names of its
        # queues with a line feed before and behind each; without any, it takes those of all
        self.waiting = tag + "waiting"
        # channel per worker that waits: "<server's time> " and a list of the tasks that a commit
        # hands to it
        self.hand = tag + "hand:"
        # stream per queue, of tasks that nobody has claimed: t = token, p = partition, b = task
        self.tasks = tag + "tasks:"
        # hash: token to where it is, for every task that is queued or claimed:
        # "q<entry id> <queue>" or "w<worker>"
        self.out = tag + "out"
        # hash per worker: token to "<partition> <started><beats missed>"
        self.held = tag + "held:"
        # stream per worker: t = token it holds that was dropped
        self.dropped = tag + "dropped:"
        # hash: worker to the number of its last sign of life; the number that was given last
        self.workers = tag + "workers"
        self.signs = tag + "signs"
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
