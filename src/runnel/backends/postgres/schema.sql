-- The newest schema, as a new database gets it; an older one gets here by the files in migrations/.
-- Times are seconds since the epoch, as in every other store: to the last bit what the engine said.

-- One row: which pair of Redis and PostgreSQL this is, and how it is divided; the name that its
-- Redis has for itself, and the addresses by which it was found.
CREATE TABLE meta (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    incarnation text NOT NULL,
    partitions integer NOT NULL,
    redis_id text,
    redis_places text[] NOT NULL DEFAULT '{}'
);

-- How far each partition is archived, and the epoch of the last who archived it.
CREATE TABLE cursors (
    partition integer PRIMARY KEY,
    sequence bigint NOT NULL DEFAULT 0,
    epoch bigint NOT NULL DEFAULT 0
);

-- Where each life of Redis went on, by the epoch that began it: of a Redis that comes back from an
-- earlier life, only what is below all later ones is what happened.
CREATE TABLE lives (
    partition integer NOT NULL,
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    PRIMARY KEY (partition, epoch)
);

-- A version below zero is one that was deleted: only executions of it find it, by its hash.
CREATE TABLE definitions (
    hash text PRIMARY KEY,
    name text NOT NULL,
    version integer NOT NULL,
    document bytea NOT NULL,
    UNIQUE (name, version)
);

-- "C" sorts by bytes: then the ids of a tree follow each other, and a prefix is a range.
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
    error text,
    rerun_of text COLLATE "C"
);

CREATE INDEX executions_by_state ON executions (is_root, state, created_at DESC, id DESC);
CREATE INDEX executions_by_workflow
    ON executions (workflow, is_root, state, created_at DESC, id DESC);
CREATE INDEX executions_unfinished ON executions (partition) WHERE state IN ('PENDING', 'RUNNING');
CREATE INDEX executions_finished ON executions (state, finished_at) WHERE is_root;

-- Labels, of those that have any; jsonb has no zero character, which a label may have.
CREATE INDEX executions_by_label ON executions
    USING gin ((replace(labels, '\u0000', '\ufffd')::jsonb) jsonb_path_ops)
    WHERE labels <> '{}';
CREATE INDEX executions_by_rerun ON executions (rerun_of, created_at DESC, id DESC)
    WHERE rerun_of IS NOT NULL;
CREATE INDEX executions_by_parent ON executions (parent_id, created_at DESC, id DESC)
    WHERE parent_id IS NOT NULL;

-- Made from the events: the last known of each node, and of each item of a map (item -1 is the
-- node itself). A node that has not begun has no row.
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

-- Append-only: what every commit did to every execution, as the engine wrote it.
CREATE TABLE audit_log (
    partition integer NOT NULL,
    sequence bigint NOT NULL,
    ordinal integer NOT NULL,
    aggregate_id text COLLATE "C" NOT NULL,
    entry bytea NOT NULL,
    PRIMARY KEY (partition, sequence, ordinal)
);

CREATE INDEX audit_log_by_aggregate ON audit_log (aggregate_id, sequence, ordinal);

-- The same of concurrency keys, while somebody holds or waits for them.
CREATE TABLE limit_log (
    partition integer NOT NULL,
    sequence bigint NOT NULL,
    ordinal integer NOT NULL,
    aggregate_id text COLLATE "C" NOT NULL,
    entry bytea NOT NULL,
    PRIMARY KEY (partition, sequence, ordinal)
);

CREATE INDEX limit_log_by_aggregate ON limit_log (aggregate_id);

-- What PostgreSQL would not take of a commit, as the engine wrote it: an entry ('history'), a
-- header or a dead letter ('letter'). From the first one of an execution on, all of it is here, so
-- that its history is that of the audit log and then this. The id may be what was refused: its
-- digest can be looked up.
CREATE TABLE set_aside (
    partition integer NOT NULL,
    sequence bigint NOT NULL,
    kind text NOT NULL,
    ordinal integer NOT NULL,
    digest text NOT NULL,
    aggregate_id bytea NOT NULL,
    body bytea NOT NULL,
    reason text NOT NULL,
    set_aside_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (partition, sequence, kind, ordinal)
);

CREATE INDEX set_aside_by_digest ON set_aside (digest, sequence, ordinal);

-- What callers asked for. Applied once an archived event says so, or its execution is final; with a
-- problem when it can't be read.
CREATE TABLE commands (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    partition integer NOT NULL,
    execution_id text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    key text NOT NULL,
    body bytea NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    sent_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    applied_at timestamptz,
    problem text
);

CREATE INDEX commands_unapplied ON commands (partition, id) WHERE applied_at IS NULL;
CREATE INDEX commands_unreadable ON commands (id) WHERE problem IS NOT NULL;
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

-- Small documents that people and services keep; a revision is never given twice.
CREATE TABLE records (
    kind text COLLATE "C" NOT NULL,
    key bytea NOT NULL,
    data bytea NOT NULL,
    revision bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (kind, key)
);
