-- The first schema. The statements of a released migration never change; a change gets the next
-- number.

-- The only row holds the name of this pair of Redis and PostgreSQL, and its number of partitions.
CREATE TABLE meta (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    incarnation text NOT NULL,
    partitions integer NOT NULL
);

-- How far each partition is archived, and the epoch of the last archiver.
CREATE TABLE cursors (
    partition integer PRIMARY KEY,
    sequence bigint NOT NULL DEFAULT 0,
    epoch bigint NOT NULL DEFAULT 0
);

-- The sequence after which each incarnation of Redis continued, by its first epoch. If Redis is
-- rolled back to an earlier incarnation, only those of its commits are valid that precede all later
-- incarnations.
CREATE TABLE lives (
    partition integer NOT NULL,
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    PRIMARY KEY (partition, epoch)
);

CREATE TABLE definitions (
    hash text PRIMARY KEY,
    name text NOT NULL,
    version integer NOT NULL,
    document bytea NOT NULL,
    UNIQUE (name, version)
);

-- The collation "C" sorts by bytes, so the ids of a tree are adjacent and a prefix is a range of
-- ids.
CREATE TABLE executions (
    id text COLLATE "C" PRIMARY KEY,
    partition integer NOT NULL,
    is_root boolean NOT NULL,
    workflow text NOT NULL,
    version integer NOT NULL,
    definition text NOT NULL,
    state text NOT NULL,
    created_at double precision NOT NULL,
    started_at double precision,
    finished_at double precision,
    parent_id text COLLATE "C",
    labels text NOT NULL,
    error text
);

CREATE INDEX executions_by_state ON executions (is_root, state, created_at DESC, id DESC);
CREATE INDEX executions_by_workflow
    ON executions (workflow, is_root, state, created_at DESC, id DESC);
CREATE INDEX executions_unfinished ON executions (partition) WHERE state IN ('PENDING', 'RUNNING');
CREATE INDEX executions_finished ON executions (state, finished_at) WHERE is_root;

-- The last known state of each node and of each item of a map, derived from the events. Item -1 is
-- the node itself. A node that has not started has no row.
CREATE TABLE node_executions (
    execution_id text COLLATE "C" NOT NULL,
    node_id text NOT NULL,
    item integer NOT NULL,
    state text NOT NULL,
    attempts integer NOT NULL,
    worker text,
    queued_at double precision,
    started_at double precision,
    finished_at double precision,
    error text,
    PRIMARY KEY (execution_id, node_id, item)
);

-- The history entries of every commit, as the engine wrote them. This table is append-only.
CREATE TABLE audit_log (
    partition integer NOT NULL,
    sequence bigint NOT NULL,
    ordinal integer NOT NULL,
    aggregate_id text COLLATE "C" NOT NULL,
    entry bytea NOT NULL,
    PRIMARY KEY (partition, sequence, ordinal)
);

CREATE INDEX audit_log_by_aggregate ON audit_log (aggregate_id, sequence, ordinal);

-- The histories of concurrency keys that have holders or waiters.
CREATE TABLE limit_log (
    partition integer NOT NULL,
    sequence bigint NOT NULL,
    ordinal integer NOT NULL,
    aggregate_id text COLLATE "C" NOT NULL,
    entry bytea NOT NULL,
    PRIMARY KEY (partition, sequence, ordinal)
);

CREATE INDEX limit_log_by_aggregate ON limit_log (aggregate_id);

-- Commands of callers. A command is applied once an archived event shows it or its execution is
-- final.
CREATE TABLE commands (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    partition integer NOT NULL,
    execution_id text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    key text NOT NULL,
    body bytea NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    sent_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    applied_at timestamptz
);

CREATE INDEX commands_unapplied ON commands (partition, id) WHERE applied_at IS NULL;
CREATE INDEX commands_by_execution ON commands (execution_id);

CREATE TABLE dead_letters (
    partition integer NOT NULL,
    sequence bigint NOT NULL,
    ordinal integer NOT NULL,
    execution_id text COLLATE "C" NOT NULL,
    queue text NOT NULL,
    rejected_at double precision NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (partition, sequence, ordinal)
);

CREATE INDEX dead_letters_by_age
    ON dead_letters (rejected_at DESC, partition DESC, sequence DESC, ordinal DESC);
CREATE INDEX dead_letters_by_execution ON dead_letters (execution_id);

CREATE TABLE blobs (
    key text COLLATE "C" PRIMARY KEY,
    data bytea NOT NULL
);
