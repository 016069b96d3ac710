-- The current schema, for a new database. The files in migrations/ bring an older database to the
-- same state. Times are seconds since the epoch, as in every other store, exactly as the engine
-- computed them.

-- The only row holds the name of this pair of Redis and PostgreSQL and its number of partitions.
-- The row also holds the id and the addresses of the Redis.
CREATE TABLE meta (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    incarnation text NOT NULL,
    partitions integer NOT NULL,
    redis_id text,
    redis_places text[] NOT NULL DEFAULT '{}'
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

-- A negative version marks a deleted definition, which only its executions still read, by its hash.
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
    error text,
    rerun_of text COLLATE "C"
);

CREATE INDEX executions_by_state ON executions (is_root, state, created_at DESC, id DESC);
CREATE INDEX executions_by_workflow
    ON executions (workflow, is_root, state, created_at DESC, id DESC);
CREATE INDEX executions_unfinished ON executions (partition) WHERE state IN ('PENDING', 'RUNNING');
CREATE INDEX executions_finished ON executions (state, finished_at) WHERE is_root;

-- An index of labels, for executions that have labels. jsonb can't store NUL, which a label can
-- contain.
CREATE INDEX executions_by_label ON executions
    USING gin ((replace(labels, '\u0000', '\ufffd')::jsonb) jsonb_path_ops)
    WHERE labels <> '{}';
CREATE INDEX executions_by_rerun ON executions (rerun_of, created_at DESC, id DESC)
    WHERE rerun_of IS NOT NULL;
CREATE INDEX executions_by_parent ON executions (parent_id, created_at DESC, id DESC)
    WHERE parent_id IS NOT NULL;

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

-- Quarantined entries, as the engine wrote them: history entries, headers or dead letters
-- ('letter'). After PostgreSQL refuses one entry of an execution, all later entries of the
-- execution are stored here. The history of the execution is the audit log followed by these
-- entries. The id itself may be the refused value, so queries use its digest.
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

-- Commands of callers. A command is applied once an archived event shows it or its execution is
-- final. The column `problem` is set for an unreadable command.
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

-- Records: small values of users and services. A revision is never assigned twice.
CREATE TABLE records (
    kind text COLLATE "C" NOT NULL,
    key bytea NOT NULL,
    data bytea NOT NULL,
    revision bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (kind, key)
);

-- Views for users' own queries: JSON as jsonb, times as timestamptz. They read the history, so the
-- archiver writes nothing more. The functions name no table and no function of this schema: a user
-- who may read only the views can call them, with any search path.

-- The text as jsonb. jsonb can't hold the character NUL, which becomes U+FFFD, and numbers of more
-- than 131,072 digits: such a value becomes one text with the JSON.
CREATE FUNCTION archived_json(content text) RETURNS jsonb
LANGUAGE plpgsql STABLE STRICT AS $$
BEGIN
    IF position('\u0000' IN content) = 0 THEN
        RETURN content::jsonb;
    END IF;
    RETURN regexp_replace(content, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g')::jsonb;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN to_jsonb(content);
END
$$;

-- The events of a history entry, in order. An entry that PostgreSQL can't read has none.
CREATE FUNCTION archived_events(entry bytea) RETURNS SETOF json
LANGUAGE plpgsql STABLE STRICT ROWS 4 AS $$
DECLARE
    content text := convert_from(entry, 'UTF8');
BEGIN
    IF position('\u0000' IN content) > 0 THEN
        content := regexp_replace(content, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g');
    END IF;
    RETURN QUERY SELECT json_array_elements(content::json -> 2);
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN;
END
$$;

-- One row for each execution. Large values are read from the blobs.
CREATE VIEW execution_values AS
SELECT
    executions.id AS execution_id,
    executions.workflow,
    executions.version,
    executions.state AS status,
    (
        SELECT coalesce(
            archived_json((value -> 'data')::text),
            (SELECT archived_json(convert_from(data, 'UTF8')) FROM blobs
             WHERE key = replace(value ->> 'blob', '\', '\\'))
        )
        FROM (
            SELECT event -> 'input' AS value
            FROM audit_log
            CROSS JOIN archived_events(audit_log.entry) WITH ORDINALITY AS events (event, place)
            WHERE aggregate_id = executions.id
                AND (position('"type":"ExecutionCreated"'::bytea IN entry) > 0
                    OR position('"type":"ExecutionStarted"'::bytea IN entry) > 0)
                AND event ->> 'type' IN ('ExecutionCreated', 'ExecutionStarted')
                AND json_typeof(event -> 'input') = 'object'
            ORDER BY sequence DESC, ordinal DESC, place DESC
            LIMIT 1
        ) AS newest
    ) AS input,
    (
        SELECT coalesce(
            archived_json((value -> 'data')::text),
            (SELECT archived_json(convert_from(data, 'UTF8')) FROM blobs
             WHERE key = replace(value ->> 'blob', '\', '\\'))
        )
        FROM (
            SELECT event -> 'output' AS value
            FROM audit_log CROSS JOIN archived_events(audit_log.entry) AS events (event)
            WHERE aggregate_id = executions.id
                AND position('"type":"ExecutionFinished"'::bytea IN entry) > 0
                AND event ->> 'type' = 'ExecutionFinished'
                AND json_typeof(event -> 'output') = 'object'
            ORDER BY sequence DESC, ordinal DESC
            LIMIT 1
        ) AS newest
    ) AS output,
    executions.error,
    archived_json(executions.labels) AS labels,
    to_timestamp(executions.created_at) AS created_at,
    to_timestamp(executions.started_at) AS started_at,
    to_timestamp(executions.finished_at) AS finished_at,
    executions.parent_id,
    executions.rerun_of
FROM executions;

-- One row for each node that has begun, and for each item of a map. OFFSET 0 makes PostgreSQL read
-- the history of an execution once, not once for each node.
CREATE VIEW node_values AS
SELECT
    executions.id AS execution_id,
    executions.workflow,
    nodes.node_id,
    nullif(nodes.item, -1) AS item,
    nodes.state AS status,
    nodes.attempts,
    coalesce(
        archived_json((nodes.value -> 'data')::text),
        (SELECT archived_json(convert_from(data, 'UTF8')) FROM blobs
         WHERE key = replace(nodes.value ->> 'blob', '\', '\\'))
    ) AS output,
    nodes.error,
    nodes.worker,
    to_timestamp(nodes.queued_at) AS queued_at,
    to_timestamp(nodes.started_at) AS started_at,
    to_timestamp(nodes.finished_at) AS finished_at
FROM executions
CROSS JOIN LATERAL (
    SELECT node_executions.*, completed.value
    FROM node_executions
    LEFT JOIN (
        SELECT DISTINCT ON (node_id, item)
            results.result ->> 'node' AS node_id,
            coalesce((results.result ->> 'item')::integer, -1) AS item,
            results.result -> 'output' AS value
        FROM audit_log
        CROSS JOIN archived_events(audit_log.entry) WITH ORDINALITY AS events (event, place)
        CROSS JOIN LATERAL (
            SELECT event AS result WHERE event ->> 'type' = 'NodeCompleted'
            UNION ALL
            SELECT json_array_elements(event -> 'taken') WHERE event ->> 'type' = 'NodesTaken'
        ) AS results
        WHERE aggregate_id = executions.id
            AND (position('"type":"NodeCompleted"'::bytea IN entry) > 0
                OR position('"type":"NodesTaken"'::bytea IN entry) > 0)
            AND json_typeof(results.result -> 'output') = 'object'
        ORDER BY node_id, item, sequence DESC, ordinal DESC, place DESC
    ) AS completed USING (node_id, item)
    WHERE node_executions.execution_id = executions.id
    OFFSET 0
) AS nodes;
