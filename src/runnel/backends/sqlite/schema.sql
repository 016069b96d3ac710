-- Partitions and their owners. The kernel lock of an owner is the file p{number}.lock. A partition
-- with a submitter receives the executions of programs that run no engine. No engine uses such a
-- partition for its own executions.
CREATE TABLE partitions (
    partition INTEGER PRIMARY KEY,
    owner TEXT NOT NULL DEFAULT '',
    epoch INTEGER NOT NULL DEFAULT 0,
    nonce TEXT NOT NULL DEFAULT '',
    sequence INTEGER NOT NULL DEFAULT 0,
    counter INTEGER NOT NULL DEFAULT 0,
    submitter TEXT
) STRICT;

-- One entry of encoded events per aggregate and commit. The table is clustered by aggregate,
-- because reads are by aggregate. Commits of 1 / 10 / 500 rows take 32 / 85 / 2,050 µs; with a
-- rowid table and an index they took 44 / 86 / 2,290 µs.
CREATE TABLE history (
    aggregate_id TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    part INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    entry BLOB NOT NULL,
    PRIMARY KEY (aggregate_id, sequence, part)
) STRICT, WITHOUT ROWID;

CREATE TABLE executions (
    id TEXT PRIMARY KEY,
    partition INTEGER NOT NULL,
    workflow TEXT NOT NULL,
    version INTEGER NOT NULL,
    definition TEXT NOT NULL,
    state TEXT NOT NULL,
    created_at REAL NOT NULL,
    started_at REAL,
    finished_at REAL,
    parent_id TEXT,
    labels TEXT NOT NULL,
    error TEXT,
    rerun_of TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX executions_by_age ON executions (created_at, id);
CREATE INDEX executions_by_state ON executions (state, created_at, id);
CREATE INDEX executions_by_workflow ON executions (workflow, created_at, id);
CREATE INDEX executions_by_rerun ON executions (rerun_of, created_at, id)
WHERE rerun_of IS NOT NULL;
CREATE INDEX executions_finished ON executions (state, finished_at)
WHERE parent_id IS NULL AND finished_at IS NOT NULL;

-- A negative version marks a deleted definition, which only its executions still read, by its hash.
CREATE TABLE definitions (
    hash TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    document BLOB NOT NULL,
    UNIQUE (name, version)
) STRICT;

CREATE TABLE timers (
    partition INTEGER NOT NULL,
    execution_id TEXT NOT NULL,
    node_id TEXT NOT NULL,
    item INTEGER NOT NULL,
    kind TEXT NOT NULL,
    due REAL NOT NULL,
    attempt INTEGER NOT NULL,
    PRIMARY KEY (partition, execution_id, node_id, item, kind)
) STRICT, WITHOUT ROWID;

-- Unconsumed commands of callers and of other partitions. AUTOINCREMENT is needed because an owner
-- keeps the last id that it read, so an id must never be used again.
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    partition INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;

CREATE INDEX messages_by_partition ON messages (partition, id);

CREATE TABLE dead_letters (
    id INTEGER PRIMARY KEY,
    rejected_at REAL NOT NULL,
    body BLOB NOT NULL
) STRICT;

CREATE INDEX dead_letters_by_age ON dead_letters (rejected_at, id);
CREATE INDEX dead_letters_by_execution ON dead_letters (
    json_extract(CAST(body AS TEXT), '$.token[0]')
);

-- Cached outputs by the hash of their inputs, for nodes that have a cache.
CREATE TABLE results (
    key TEXT PRIMARY KEY,
    ends_at REAL NOT NULL,
    data BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX results_by_end ON results (ends_at);

CREATE TABLE buckets (
    tag TEXT PRIMARY KEY,
    full_at REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- Records: small values of users and services. Each change inserts a new row, whose id is the
-- revision. AUTOINCREMENT is needed because a revision must never be used again.
CREATE TABLE records (
    revision INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (kind, key)
) STRICT;

-- The feed: the changes of the last commits, one entry per commit. The first entry distinguishes
-- this file from other files. AUTOINCREMENT is not needed: the last entry is never deleted, so no
-- id is assigned twice. Without AUTOINCREMENT, an entry costs 10 µs per commit instead of 21 µs.
CREATE TABLE feed (
    id INTEGER PRIMARY KEY,
    changes TEXT NOT NULL
) STRICT;

INSERT INTO feed (changes) VALUES ('!' || hex(randomblob(8)));
