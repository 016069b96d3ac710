-- get_meta: returns the name of the archive and its number of partitions
SELECT incarnation, partitions FROM meta;

-- add_meta: stores the metadata of a new database, unless another process has stored it
INSERT INTO meta (incarnation, partitions) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- get_redis_side: returns the Redis that is paired with this archive
SELECT redis_id, redis_places FROM meta;

-- put_redis_side: stores the paired Redis, unless another process has changed it
UPDATE meta SET redis_id = $1, redis_places = $2 WHERE redis_id IS NOT DISTINCT FROM $3;

-- add_place: adds an address of the paired Redis
UPDATE meta SET redis_places = array_append(redis_places, $1)
WHERE NOT $1 = ANY (redis_places) AND cardinality(redis_places) < $2;

-- add_cursors: adds a cursor for each partition
INSERT INTO cursors (partition) SELECT generate_series(0, $1::integer - 1) ON CONFLICT DO NOTHING;

-- get_cursor: returns how far a partition is archived
SELECT sequence, epoch FROM cursors WHERE partition = $1;

-- claim_cursor: fences out lower epochs from archiving this partition
UPDATE cursors SET epoch = $2 WHERE partition = $1 AND epoch < $2 RETURNING sequence;

-- get_branch: returns the lowest sequence after which a later incarnation of Redis continued
SELECT min(sequence) FROM lives WHERE partition = $1 AND epoch > $2;

-- add_life: records that Redis continues after this sequence
INSERT INTO lives (partition, epoch, sequence) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING;

-- move_cursor: archives a commit once by compare-and-set; also returns the quarantined digests
UPDATE cursors SET sequence = $4, epoch = $2
WHERE partition = $1 AND epoch <= $2 AND sequence = $3
RETURNING sequence, ARRAY(SELECT DISTINCT digest FROM set_aside WHERE partition = $1);

-- clear_staged_headers: removes the staged headers of one part of a commit
DELETE FROM staged_headers;

-- clear_staged_nodes: removes the staged nodes of one part of a commit
DELETE FROM staged_nodes;

-- add_set_aside: quarantines an entry that was refused or that follows a refused entry
INSERT INTO set_aside (partition, sequence, kind, ordinal, digest, aggregate_id, body, reason)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8);

-- close_set_aside: removes concurrency keys without holders and waiters from the quarantine
DELETE FROM set_aside WHERE digest = ANY ($1::text[]);

-- load_set_aside: returns the quarantined entries of a history
SELECT body FROM set_aside WHERE digest = $1 AND kind = 'history' ORDER BY sequence, ordinal;

-- list_set_aside: lists the quarantined entries of aggregates in order, each header first
SELECT digest, kind, sequence, body FROM set_aside WHERE digest = ANY ($1::text[])
ORDER BY sequence, kind, ordinal;

-- list_limits_set_aside: lists the quarantined concurrency keys of a partition
SELECT aggregate_id, body FROM set_aside
WHERE partition = $1 AND kind = 'history' AND substr(aggregate_id, 1, 6) = 'limit:'::bytea
ORDER BY sequence, ordinal;

-- list_ids_set_aside: lists the aggregates of a partition with entries quarantined after a commit
SELECT DISTINCT aggregate_id FROM set_aside WHERE partition = $1 AND sequence > $2;

-- delete_set_aside: deletes the quarantined entries of an execution and its descendants
DELETE FROM set_aside WHERE aggregate_id = convert_to($1, 'UTF8')
    OR (aggregate_id >= convert_to($2, 'UTF8') AND aggregate_id < convert_to($3, 'UTF8'));

-- put_headers: inserts headers, or updates the mutable columns of existing headers
INSERT INTO executions (
    id, partition, is_root, workflow, version, definition, state,
    created_at, started_at, finished_at, parent_id, labels, error, rerun_of
)
SELECT id, partition, parent_id IS NULL, workflow, version, definition, state,
    created_at, started_at, finished_at, parent_id, labels, error, rerun_of
FROM staged_headers
ON CONFLICT (id) DO UPDATE SET
    workflow = excluded.workflow,
    version = excluded.version,
    definition = excluded.definition,
    state = excluded.state,
    created_at = excluded.created_at,
    started_at = excluded.started_at,
    finished_at = excluded.finished_at,
    labels = excluded.labels,
    error = excluded.error;

-- record: records commands of callers and inserts the executions that they create; existing
-- executions stay unchanged. The creation of an ended execution is not recorded. If an execution
-- ends at the same time, Redis still has it and ignores the creation. Rows are inserted in a fixed
-- order, so that two callers with the same executions do not deadlock. Returns the recorded
-- commands, and the required definitions that are not stored. The lock on a definition makes this
-- statement and the deletion of the definition wait for each other.
WITH stored AS MATERIALIZED (
    SELECT hash FROM definitions WHERE hash = ANY ($19::text[]) AND version > 0 FOR SHARE
), refused AS (
    SELECT hash FROM unnest($19::text[]) AS required (hash)
    WHERE hash NOT IN (SELECT hash FROM stored)
), ended AS (
    SELECT id FROM executions
    WHERE id = ANY ($6::text[]) AND state NOT IN ('PENDING', 'RUNNING')
), headers AS (
    SELECT * FROM unnest(
        $6::text[], $7::integer[], $8::text[], $9::integer[], $10::text[], $11::text[],
        $12::float8[], $13::float8[], $14::float8[], $15::text[], $16::text[], $17::text[],
        $18::text[]
    ) AS headers (
        id, partition, workflow, version, definition, state,
        created_at, started_at, finished_at, parent_id, labels, error, rerun_of
    )
    WHERE definition NOT IN (SELECT hash FROM refused)
), inserted AS (
    INSERT INTO executions (
        id, partition, is_root, workflow, version, definition, state,
        created_at, started_at, finished_at, parent_id, labels, error, rerun_of
    )
    SELECT id, partition, parent_id IS NULL, workflow, version, definition, state,
        created_at, started_at, finished_at, parent_id, labels, error, rerun_of
    FROM headers
    ORDER BY id COLLATE "C"
    ON CONFLICT (id) DO NOTHING
), recorded AS (
    INSERT INTO commands (partition, execution_id, kind, key, body)
    SELECT partition, execution_id, kind, key, body
    FROM unnest($1::integer[], $2::text[], $3::text[], $4::text[], $5::bytea[]) WITH ORDINALITY
        AS requested (partition, execution_id, kind, key, body, place)
    WHERE kind <> 'CreateExecution' OR (
        execution_id IN (SELECT id FROM headers) AND execution_id NOT IN (SELECT id FROM ended)
    )
    ORDER BY place
    RETURNING execution_id, kind
)
SELECT execution_id, kind FROM recorded UNION ALL SELECT hash, 'refused' FROM refused;

-- put_nodes: merges node rows; a row with queued_at starts a new attempt and replaces the worker
INSERT INTO node_executions AS known (
    execution_id, node_id, item, state, attempts, worker,
    queued_at, started_at, finished_at, error
)
SELECT * FROM staged_nodes
ON CONFLICT (execution_id, node_id, item) DO UPDATE SET
    state = excluded.state,
    attempts = greatest(known.attempts, excluded.attempts),
    worker = CASE WHEN excluded.queued_at IS NULL
        THEN coalesce(known.worker, excluded.worker) ELSE excluded.worker END,
    queued_at = coalesce(excluded.queued_at, known.queued_at),
    started_at = CASE WHEN excluded.queued_at IS NULL
        THEN coalesce(known.started_at, excluded.started_at) ELSE excluded.started_at END,
    finished_at = excluded.finished_at,
    error = CASE WHEN excluded.state = 'COMPLETED' THEN NULL
        ELSE coalesce(excluded.error, known.error) END;

-- close_limits: removes concurrency keys without holders and waiters
DELETE FROM limit_log WHERE aggregate_id = ANY ($1::text[]);

-- apply_commands: marks those commands as applied whose events were archived
UPDATE commands SET applied_at = clock_timestamp()
FROM unnest($1::text[], $2::text[], $3::text[]) AS given (execution_id, kind, key)
WHERE commands.execution_id = given.execution_id
    AND commands.kind = given.kind
    AND commands.key = given.key
    AND applied_at IS NULL;

-- apply_all_commands: marks commands of final executions, which can have no effect, as applied
UPDATE commands SET applied_at = clock_timestamp()
WHERE execution_id = ANY ($1::text[]) AND applied_at IS NULL;

-- apply_late_commands: marks commands as applied that were recorded after their execution was final
UPDATE commands SET applied_at = clock_timestamp()
WHERE partition = $1 AND applied_at IS NULL
    AND (SELECT state FROM executions WHERE executions.id = commands.execution_id)
        NOT IN ('PENDING', 'RUNNING');

-- take_unapplied: lists commands without effect, to send them again; the pause doubles each time
UPDATE commands SET sent_at = clock_timestamp()
WHERE id = ANY (ARRAY(
    SELECT id FROM commands
    WHERE partition = $1 AND applied_at IS NULL AND problem IS NULL AND id > $4
        AND ($2::float8 = 0 OR clock_timestamp() - sent_at
            >= greatest(make_interval(secs => $2::float8), sent_at - recorded_at))
    ORDER BY id LIMIT $3
))
RETURNING id, body;

-- mark_unreadable: marks a command that can't be read, so that it is kept but not sent again
UPDATE commands SET problem = $2 WHERE id = $1;

-- get_version: returns the version of a stored definition that was not deleted
SELECT version FROM definitions WHERE hash = $1 AND version > 0;

-- lock_definitions: serializes the assignment of versions of one name
SELECT pg_advisory_xact_lock(hashtextextended('runnel definition ' || $1::text, 0));

-- add_definition: stores a definition under the next version of its name, even if it was deleted
INSERT INTO definitions (hash, name, version, document)
SELECT $1::text, $2::text, coalesce(max(abs(version)), 0) + 1, $3::bytea
FROM definitions WHERE name = $2::text
ON CONFLICT (hash) DO UPDATE SET version = excluded.version
RETURNING version;

-- delete_versions: marks all versions of a name as deleted; executions still read theirs by hash
UPDATE definitions SET version = -version WHERE name = $1 AND version > 0;

-- list_workflows: lists the newest version of each workflow, by name
SELECT hash, name, version, document FROM definitions AS newest
WHERE name COLLATE "C" > $1 AND version > 0
    AND version = (SELECT max(version) FROM definitions WHERE name = newest.name)
ORDER BY name COLLATE "C"
LIMIT $2;

-- list_versions: lists the versions of one workflow, newest first
SELECT hash, name, version, document FROM definitions
WHERE name = $1 AND version > 0 ORDER BY version DESC LIMIT $2;

-- find_version: returns one version of a workflow
SELECT hash, name, version, document FROM definitions
WHERE name = $1 AND version = $2 AND version > 0;

-- get_definition: returns a definition by its hash
SELECT name, abs(version), document FROM definitions WHERE hash = $1;

-- get_header: returns the header of one execution, and its last quarantined header
SELECT id, workflow, version, definition, state,
    created_at, started_at, finished_at, parent_id, labels, error, rerun_of, aside.body
FROM (SELECT (
    SELECT body FROM set_aside WHERE digest = $2 AND kind = 'header'
    ORDER BY sequence DESC, ordinal DESC LIMIT 1
) AS body) AS aside
LEFT JOIN executions ON id = $1;

-- list_headers: lists the newest headers after a position; reads the index per state, then merges
SELECT found.*
FROM unnest($1::boolean[]) AS roots (is_root)
CROSS JOIN unnest($2::text[]) AS states (state)
CROSS JOIN LATERAL (
    SELECT id, workflow, version, definition, executions.state,
        created_at, started_at, finished_at, parent_id, labels, error, rerun_of
    FROM executions
    WHERE executions.is_root = roots.is_root AND executions.state = states.state
        AND (created_at, id) < ($3::float8, $4::text) AND created_at >= $5::float8
    ORDER BY created_at DESC, id DESC
    LIMIT $6
) AS found
ORDER BY created_at DESC, id DESC
LIMIT $6;

-- list_headers_of: lists the newest headers of one workflow after a position
SELECT found.*
FROM unnest($1::boolean[]) AS roots (is_root)
CROSS JOIN unnest($2::text[]) AS states (state)
CROSS JOIN LATERAL (
    SELECT id, workflow, version, definition, executions.state,
        created_at, started_at, finished_at, parent_id, labels, error, rerun_of
    FROM executions
    WHERE executions.is_root = roots.is_root AND executions.state = states.state
        AND (created_at, id) < ($3::float8, $4::text) AND created_at >= $5::float8
        AND workflow = $7
    ORDER BY created_at DESC, id DESC
    LIMIT $6
) AS found
ORDER BY created_at DESC, id DESC
LIMIT $6;

-- list_reruns: lists the newest reruns of an execution after a position
SELECT id, workflow, version, definition, state,
    created_at, started_at, finished_at, parent_id, labels, error, rerun_of
FROM executions
WHERE rerun_of = $1
    AND (created_at, id) < ($2::float8, $3::text) AND created_at >= $4::float8
ORDER BY created_at DESC, id DESC
LIMIT $5;

-- list_children: lists the newest children of an execution after a position
SELECT id, workflow, version, definition, state,
    created_at, started_at, finished_at, parent_id, labels, error, rerun_of
FROM executions
WHERE parent_id = $1
    AND (created_at, id) < ($2::float8, $3::text) AND created_at >= $4::float8
ORDER BY created_at DESC, id DESC
LIMIT $5;

-- list_labelled: lists the newest headers with labels after a position; counts them up to a limit.
-- The conditions on time, state and root are written so that no index suits them. Otherwise a plan
-- for unknown values combines the label's index with one that reads all executions: after five uses
-- of the statement, PostgreSQL made such a plan, and a rare label of 300,000 executions took 200 ms
-- instead of 0.2.
WITH matching AS MATERIALIZED (
    SELECT id, workflow, version, definition, state,
        created_at, started_at, finished_at, parent_id, labels, error, rerun_of
    FROM executions
    WHERE labels <> '{}'
        AND replace(labels, '\u0000', '\ufffd')::jsonb
            @> replace($1::text, '\u0000', '\ufffd')::jsonb
        AND (created_at + 0, id) < ($2::float8, $3::text) AND created_at + 0 >= $4::float8
        AND (is_root IS TRUE) = ANY ($7::boolean[]) AND state || '' = ANY ($8::text[])
        AND ($9::text IS NULL OR workflow = $9)
    LIMIT $6
)
SELECT *, (SELECT count(*) FROM matching) FROM matching
ORDER BY created_at DESC, id DESC
LIMIT $5;

-- count_headers: counts executions per state, up to a limit
SELECT states.state, count(found.*)
FROM unnest($2::text[]) AS states (state)
LEFT JOIN LATERAL (
    SELECT 1
    FROM unnest($1::boolean[]) AS roots (is_root)
    JOIN LATERAL (
        SELECT 1 FROM executions
        WHERE executions.is_root = roots.is_root AND executions.state = states.state
            AND created_at < $3::float8 AND created_at >= $4::float8
        ORDER BY created_at DESC, id DESC
        LIMIT $5
    ) AS each ON true
    LIMIT $5
) AS found ON true
GROUP BY states.state;

-- count_headers_of: counts the executions of one workflow per state, up to a limit
SELECT states.state, count(found.*)
FROM unnest($2::text[]) AS states (state)
LEFT JOIN LATERAL (
    SELECT 1
    FROM unnest($1::boolean[]) AS roots (is_root)
    JOIN LATERAL (
        SELECT 1 FROM executions
        WHERE executions.is_root = roots.is_root AND executions.state = states.state
            AND created_at < $3::float8 AND created_at >= $4::float8 AND workflow = $6
        ORDER BY created_at DESC, id DESC
        LIMIT $5
    ) AS each ON true
    LIMIT $5
) AS found ON true
GROUP BY states.state;

-- find_ids: lists the execution ids that begin with a prefix
SELECT id FROM executions
WHERE id >= $1 AND id < $2 AND ($3 OR strpos(id, '.') = 0)
ORDER BY id
LIMIT $4;

-- load_history: returns the history entries of one execution in order, after skipped entries
SELECT entry FROM audit_log WHERE aggregate_id = $1 ORDER BY sequence, ordinal OFFSET $2;

-- list_nodes: lists the nodes of one execution, by id and item
SELECT node_id, item, state, attempts, worker, queued_at, started_at, finished_at, error
FROM node_executions
WHERE execution_id = $1 AND (node_id, item) > ($2, $3)
ORDER BY node_id, item
LIMIT $4;

-- list_dead_letters: lists one page of the dead letters that match a filter, newest first
SELECT body FROM dead_letters
WHERE rejected_at < $5::float8
    AND ($1::text IS NULL OR queue = $1)
    AND ($2::text IS NULL OR EXISTS (
        SELECT 1 FROM executions WHERE id = execution_id AND workflow = $2
    ))
    AND execution_id >= $3::text AND execution_id < $4::text
    AND rejected_at <= $6::float8 AND (rejected_at, body) < ($6::float8, $7::bytea)
ORDER BY rejected_at DESC, body DESC
LIMIT $8;

-- count_dead_letters: counts the dead letters that match a filter
SELECT count(*) FROM dead_letters
WHERE rejected_at < $5::float8
    AND ($1::text IS NULL OR queue = $1)
    AND ($2::text IS NULL OR EXISTS (
        SELECT 1 FROM executions WHERE id = execution_id AND workflow = $2
    ))
    AND execution_id >= $3::text AND execution_id < $4::text;

-- delete_replaced_letters: deletes the dead letters of executions that were rerun before the
-- archiver stored the letters. A rerun with another input does not replace them.
DELETE FROM dead_letters
WHERE execution_id = ANY($1::text[])
    AND EXISTS (
        SELECT 1 FROM executions AS rerun
        WHERE rerun.rerun_of = split_part(dead_letters.execution_id, '.', 1)
            AND rerun.created_at >= dead_letters.rejected_at
            AND NOT replace(rerun.labels, '\u0000', '\ufffd')::jsonb ? 'runnel.new_input'
    );

-- delete_letters: deletes dead letters by their content
DELETE FROM dead_letters
USING unnest($1::text[], $2::bytea[]) AS given (execution_id, body)
WHERE dead_letters.execution_id = given.execution_id AND dead_letters.body = given.body
RETURNING dead_letters.sequence;

-- put_blob: stores a blob, or replaces it
INSERT INTO blobs (key, data) VALUES ($1, $2)
ON CONFLICT (key) DO UPDATE SET data = excluded.data;

-- get_blob: returns a blob by its key
SELECT data FROM blobs WHERE key = $1;

-- read_blob_parts: returns a part of each given blob, from the given byte on; bytes count from 1
SELECT key, substring(data FROM $2 FOR $3) FROM blobs WHERE key = ANY ($1::text[]);

-- delete_blobs: deletes the blobs whose keys begin with a prefix
DELETE FROM blobs WHERE key >= $1 AND key < $2;

-- list_blobs: lists blob keys in a range
SELECT key FROM blobs WHERE key >= $1 AND key < $2 ORDER BY key;

-- list_touched: lists the executions of a partition that changed after the given commit
SELECT DISTINCT aggregate_id FROM audit_log WHERE partition = $1 AND sequence > $2;

-- list_known: returns those of the given root executions that exist
SELECT id FROM executions WHERE id = ANY ($1::text[]);

-- list_unfinished: lists executions of a partition that are not final
SELECT id FROM executions
WHERE partition = $1 AND state IN ('PENDING', 'RUNNING')
ORDER BY id;

-- list_trees: lists the given roots with all their descendants
SELECT found.id
FROM unnest($1::text[]) AS roots (id)
CROSS JOIN LATERAL (
    SELECT id FROM executions WHERE executions.id = roots.id
    UNION ALL
    SELECT id FROM executions
    WHERE executions.id >= roots.id || '.' AND executions.id < roots.id || '/'
) AS found;

-- get_headers: returns the headers of the given executions
SELECT id, workflow, version, definition, state,
    created_at, started_at, finished_at, parent_id, labels, error, rerun_of
FROM executions WHERE id = ANY ($1::text[]) ORDER BY created_at, id;

-- load_histories: returns the history entries of the given executions, each in order
SELECT aggregate_id, sequence, entry FROM audit_log
WHERE aggregate_id = ANY ($1::text[])
ORDER BY aggregate_id, sequence, ordinal;

-- list_limits: lists the concurrency keys of a partition that have holders or waiters
SELECT aggregate_id, entry FROM limit_log WHERE partition = $1 ORDER BY sequence, ordinal;

-- take_finished: lists root executions that ended in a state before a time, without active children
SELECT id FROM executions AS root
WHERE is_root AND state = $1 AND finished_at < $2
    AND NOT EXISTS (
        SELECT 1 FROM executions AS child
        WHERE child.id >= root.id || '.' AND child.id < root.id || '/'
            AND child.state IN ('PENDING', 'RUNNING')
    )
ORDER BY finished_at LIMIT $3
FOR UPDATE SKIP LOCKED;

-- delete_nodes: deletes the node rows of an execution and its descendants
DELETE FROM node_executions WHERE execution_id = $1 OR (execution_id >= $2 AND execution_id < $3);

-- delete_audit_log: deletes the histories of an execution and its descendants
DELETE FROM audit_log WHERE aggregate_id = $1 OR (aggregate_id >= $2 AND aggregate_id < $3);

-- delete_commands: deletes the commands of an execution and its descendants
DELETE FROM commands WHERE execution_id = $1 OR (execution_id >= $2 AND execution_id < $3);

-- delete_dead_letters: deletes the dead letters of an execution and its descendants
DELETE FROM dead_letters WHERE execution_id = $1 OR (execution_id >= $2 AND execution_id < $3);

-- delete_executions: deletes the headers of an execution and its descendants
DELETE FROM executions WHERE id = $1 OR (id >= $2 AND id < $3);

-- get_record: returns one record with its revision
SELECT key, data, revision FROM records WHERE kind = $1 AND key = $2;

-- list_records: lists the records of one kind, by key
SELECT key, data, revision FROM records WHERE kind = $1 AND key > $2 ORDER BY key LIMIT $3;

-- add_record: inserts a record, unless it exists
INSERT INTO records (kind, key, data) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING
RETURNING revision;

-- put_record: replaces a record if its revision has not changed
UPDATE records SET data = $3, revision = DEFAULT WHERE kind = $1 AND key = $2 AND revision = $4
RETURNING revision;

-- delete_record: deletes a record; if a revision is given, only with that revision
DELETE FROM records WHERE kind = $1 AND key = $2 AND ($3::bigint IS NULL OR revision = $3);
