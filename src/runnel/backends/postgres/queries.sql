-- get_meta: which pair of Redis and PostgreSQL this is
SELECT incarnation, partitions FROM meta;

-- add_meta: for a database that is opened for the first time; somebody else may be faster
INSERT INTO meta (incarnation, partitions) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- get_redis_side: which Redis this is the archive of
SELECT redis_id, redis_places FROM meta;

-- put_redis_side: unless somebody was faster
UPDATE meta SET redis_id = $1, redis_places = $2 WHERE redis_id IS NOT DISTINCT FROM $3;

-- add_place: another name of the same server
UPDATE meta SET redis_places = array_append(redis_places, $1)
WHERE NOT $1 = ANY (redis_places) AND cardinality(redis_places) < $2;

-- add_cursors: one for each partition
INSERT INTO cursors (partition) SELECT generate_series(0, $1::integer - 1) ON CONFLICT DO NOTHING;

-- get_cursor: how far a partition is archived
SELECT sequence, epoch FROM cursors WHERE partition = $1;

-- claim_cursor: from now on, nobody of a lower epoch archives this partition
UPDATE cursors SET epoch = $2 WHERE partition = $1 AND epoch < $2 RETURNING sequence;

-- get_branch: the least sequence at which a later life of Redis went on
SELECT min(sequence) FROM lives WHERE partition = $1 AND epoch > $2;

-- add_life: Redis goes on behind this sequence
INSERT INTO lives (partition, epoch, sequence) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING;

-- move_cursor: the compare-and-set that makes each commit archived once; and who is set aside
UPDATE cursors SET sequence = $4, epoch = $2
WHERE partition = $1 AND epoch <= $2 AND sequence = $3
RETURNING sequence, ARRAY(SELECT DISTINCT digest FROM set_aside WHERE partition = $1);

-- clear_staged_headers: of a part of a commit, before the next
DELETE FROM staged_headers;

-- clear_staged_nodes: of a part of a commit, before the next
DELETE FROM staged_nodes;

-- add_set_aside: what was refused, or is of an execution of which something was
INSERT INTO set_aside (partition, sequence, kind, ordinal, digest, aggregate_id, body, reason)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8);

-- close_set_aside: keys that nobody holds or waits for any more
DELETE FROM set_aside WHERE digest = ANY ($1::text[]);

-- load_set_aside: the rest of a history
SELECT body FROM set_aside WHERE digest = $1 AND kind = 'history' ORDER BY sequence, ordinal;

-- list_set_aside: all of some aggregates, in order, and of each commit the header first
SELECT digest, kind, sequence, body FROM set_aside WHERE digest = ANY ($1::text[])
ORDER BY sequence, kind, ordinal;

-- list_limits_set_aside: the concurrency keys of a partition, as `list_limits`
SELECT aggregate_id, body FROM set_aside
WHERE partition = $1 AND kind = 'history' AND substr(aggregate_id, 1, 6) = 'limit:'::bytea
ORDER BY sequence, ordinal;

-- list_ids_set_aside: of a partition, behind a commit
SELECT DISTINCT aggregate_id FROM set_aside WHERE partition = $1 AND sequence > $2;

-- delete_set_aside: of a tree
DELETE FROM set_aside WHERE aggregate_id = convert_to($1, 'UTF8')
    OR (aggregate_id >= convert_to($2, 'UTF8') AND aggregate_id < convert_to($3, 'UTF8'));

-- put_headers: new executions, or the fields that may change of known ones
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

-- record: what callers ask for, and the executions that this makes: known ones are left as they
-- are, and those that are over are not made again (of what ends meanwhile, Redis still knows). In
-- one order: two who make the same ones would wait for each other. Returns what was recorded, and
-- the definitions that have to be stored and are not: whoever deletes one waits for this, or this
-- for the deletion.
WITH living AS MATERIALIZED (
    SELECT hash FROM definitions WHERE hash = ANY ($19::text[]) AND version > 0 FOR SHARE
), refused AS (
    SELECT hash FROM unnest($19::text[]) AS needed (hash)
    WHERE hash NOT IN (SELECT hash FROM living)
), over AS (
    SELECT id FROM executions
    WHERE id = ANY ($6::text[]) AND state NOT IN ('PENDING', 'RUNNING')
), given AS (
    SELECT * FROM unnest(
        $6::text[], $7::integer[], $8::text[], $9::integer[], $10::text[], $11::text[],
        $12::float8[], $13::float8[], $14::float8[], $15::text[], $16::text[], $17::text[],
        $18::text[]
    ) AS given (
        id, partition, workflow, version, definition, state,
        created_at, started_at, finished_at, parent_id, labels, error, rerun_of
    )
    WHERE definition NOT IN (SELECT hash FROM refused)
), made AS (
    INSERT INTO executions (
        id, partition, is_root, workflow, version, definition, state,
        created_at, started_at, finished_at, parent_id, labels, error, rerun_of
    )
    SELECT id, partition, parent_id IS NULL, workflow, version, definition, state,
        created_at, started_at, finished_at, parent_id, labels, error, rerun_of
    FROM given
    ORDER BY id COLLATE "C"
    ON CONFLICT (id) DO NOTHING
), recorded AS (
    INSERT INTO commands (partition, execution_id, kind, key, body)
    SELECT partition, execution_id, kind, key, body
    FROM unnest($1::integer[], $2::text[], $3::text[], $4::text[], $5::bytea[]) WITH ORDINALITY
        AS asked (partition, execution_id, kind, key, body, place)
    WHERE kind <> 'CreateExecution' OR (
        execution_id IN (SELECT id FROM given) AND execution_id NOT IN (SELECT id FROM over)
    )
    ORDER BY place
    RETURNING execution_id, kind
)
SELECT execution_id, kind FROM recorded UNION ALL SELECT hash, 'refused' FROM refused;

-- put_nodes: what a batch says of each node; a new attempt (queued_at) begins without a worker
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

-- close_limits: keys that nobody holds or waits for any more
DELETE FROM limit_log WHERE aggregate_id = ANY ($1::text[]);

-- apply_commands: an event shows that they had their effect
UPDATE commands SET applied_at = clock_timestamp()
FROM unnest($1::text[], $2::text[], $3::text[]) AS given (execution_id, kind, key)
WHERE commands.execution_id = given.execution_id
    AND commands.kind = given.kind
    AND commands.key = given.key
    AND applied_at IS NULL;

-- apply_all_commands: their execution is final, so they can't have another effect
UPDATE commands SET applied_at = clock_timestamp()
WHERE execution_id = ANY ($1::text[]) AND applied_at IS NULL;

-- apply_late_commands: recorded after the end of their execution was archived, so no event comes
UPDATE commands SET applied_at = clock_timestamp()
WHERE partition = $1 AND applied_at IS NULL
    AND (SELECT state FROM executions WHERE executions.id = commands.execution_id)
        NOT IN ('PENDING', 'RUNNING');

-- take_unapplied: what was sent a while ago and has had no effect yet; the pause doubles each time
UPDATE commands SET sent_at = clock_timestamp()
WHERE id = ANY (ARRAY(
    SELECT id FROM commands
    WHERE partition = $1 AND applied_at IS NULL AND problem IS NULL AND id > $4
        AND ($2::float8 = 0 OR clock_timestamp() - sent_at
            >= greatest(make_interval(secs => $2::float8), sent_at - recorded_at))
    ORDER BY id LIMIT $3
))
RETURNING id, body;

-- mark_unreadable: it is kept, and not sent again
UPDATE commands SET problem = $2 WHERE id = $1;

-- get_version: of content that is stored already; one below zero was deleted
SELECT version FROM definitions WHERE hash = $1 AND version > 0;

-- lock_definitions: versions are given one after the other
SELECT pg_advisory_xact_lock(hashtextextended('runnel definition ' || $1::text, 0));

-- add_definition: under the next version of its name, also what was deleted
INSERT INTO definitions (hash, name, version, document)
SELECT $1::text, $2::text, coalesce(max(abs(version)), 0) + 1, $3::bytea
FROM definitions WHERE name = $2::text
ON CONFLICT (hash) DO UPDATE SET version = excluded.version
RETURNING version;

-- delete_versions: from lists and look-ups by name; executions still have theirs
UPDATE definitions SET version = -version WHERE name = $1 AND version > 0;

-- list_workflows: the newest version of each, by name
SELECT hash, name, version, document FROM definitions AS newest
WHERE name COLLATE "C" > $1 AND version > 0
    AND version = (SELECT max(version) FROM definitions WHERE name = newest.name)
ORDER BY name COLLATE "C"
LIMIT $2;

-- list_versions: of one name, newest first
SELECT hash, name, version, document FROM definitions
WHERE name = $1 AND version > 0 ORDER BY version DESC LIMIT $2;

-- find_version: one of a name
SELECT hash, name, version, document FROM definitions
WHERE name = $1 AND version = $2 AND version > 0;

-- get_definition: by content
SELECT name, abs(version), document FROM definitions WHERE hash = $1;

-- get_header: one execution, and its last header that was set aside
SELECT id, workflow, version, definition, state,
    created_at, started_at, finished_at, parent_id, labels, error, rerun_of, aside.body
FROM (SELECT (
    SELECT body FROM set_aside WHERE digest = $2 AND kind = 'header'
    ORDER BY sequence DESC, ordinal DESC LIMIT 1
) AS body) AS aside
LEFT JOIN executions ON id = $1;

-- list_headers: the newest behind a place: one look into the index for each state, then the newest
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

-- list_headers_of: the same of one workflow
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

-- list_reruns: the newest behind a place that took over from this one
SELECT id, workflow, version, definition, state,
    created_at, started_at, finished_at, parent_id, labels, error, rerun_of
FROM executions
WHERE rerun_of = $1
    AND (created_at, id) < ($2::float8, $3::text) AND created_at >= $4::float8
ORDER BY created_at DESC, id DESC
LIMIT $5;

-- list_children: the newest behind a place that this one started
SELECT id, workflow, version, definition, state,
    created_at, started_at, finished_at, parent_id, labels, error, rerun_of
FROM executions
WHERE parent_id = $1
    AND (created_at, id) < ($2::float8, $3::text) AND created_at >= $4::float8
ORDER BY created_at DESC, id DESC
LIMIT $5;

-- list_labelled: the newest behind a place with these labels, and how many there are, up to a limit
WITH matching AS MATERIALIZED (
    SELECT id, workflow, version, definition, state,
        created_at, started_at, finished_at, parent_id, labels, error, rerun_of
    FROM executions
    WHERE labels <> '{}'
        AND replace(labels, '\u0000', '\ufffd')::jsonb
            @> replace($1::text, '\u0000', '\ufffd')::jsonb
        AND (created_at, id) < ($2::float8, $3::text) AND created_at >= $4::float8
        AND is_root = ANY ($7::boolean[]) AND state = ANY ($8::text[])
        AND ($9::text IS NULL OR workflow = $9)
    LIMIT $6
)
SELECT *, (SELECT count(*) FROM matching) FROM matching
ORDER BY created_at DESC, id DESC
LIMIT $5;

-- count_headers: in each state, up to a limit
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

-- count_headers_of: the same of one workflow
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

-- find_ids: ids between the prefix and the last one that begins with it
SELECT id FROM executions
WHERE id >= $1 AND id < $2 AND ($3 OR strpos(id, '.') = 0)
ORDER BY id
LIMIT $4;

-- load_history: of one execution, in order, behind the first entries
SELECT entry FROM audit_log WHERE aggregate_id = $1 ORDER BY sequence, ordinal OFFSET $2;

-- list_nodes: the nodes of one execution, by id and item
SELECT node_id, item, state, attempts, worker, queued_at, started_at, finished_at, error
FROM node_executions
WHERE execution_id = $1 AND (node_id, item) > ($2, $3)
ORDER BY node_id, item
LIMIT $4;

-- list_dead_letters: one page, newest first
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

-- count_dead_letters: all that are wanted
SELECT count(*) FROM dead_letters
WHERE rejected_at < $5::float8
    AND ($1::text IS NULL OR queue = $1)
    AND ($2::text IS NULL OR EXISTS (
        SELECT 1 FROM executions WHERE id = execution_id AND workflow = $2
    ))
    AND execution_id >= $3::text AND execution_id < $4::text;

-- delete_letters: these, by their bytes
DELETE FROM dead_letters
USING unnest($1::text[], $2::bytea[]) AS given (execution_id, body)
WHERE dead_letters.execution_id = given.execution_id AND dead_letters.body = given.body
RETURNING dead_letters.sequence;

-- put_blob: whole
INSERT INTO blobs (key, data) VALUES ($1, $2)
ON CONFLICT (key) DO UPDATE SET data = excluded.data;

-- get_blob: by key
SELECT data FROM blobs WHERE key = $1;

-- delete_blobs: those between the prefix and the last one that begins with it
DELETE FROM blobs WHERE key >= $1 AND key < $2;

-- list_blobs: keys between two
SELECT key FROM blobs WHERE key >= $1 AND key < $2 ORDER BY key;

-- list_touched: executions that a commit behind this one changed
SELECT DISTINCT aggregate_id FROM audit_log WHERE partition = $1 AND sequence > $2;

-- list_known: which of these there are
SELECT id FROM executions WHERE id = ANY ($1::text[]);

-- list_unfinished: executions of a partition that are not final
SELECT id FROM executions
WHERE partition = $1 AND state IN ('PENDING', 'RUNNING')
ORDER BY id;

-- list_trees: these roots and all executions below them
SELECT found.id
FROM unnest($1::text[]) AS roots (id)
CROSS JOIN LATERAL (
    SELECT id FROM executions WHERE executions.id = roots.id
    UNION ALL
    SELECT id FROM executions
    WHERE executions.id >= roots.id || '.' AND executions.id < roots.id || '/'
) AS found;

-- get_headers: these executions
SELECT id, workflow, version, definition, state,
    created_at, started_at, finished_at, parent_id, labels, error, rerun_of
FROM executions WHERE id = ANY ($1::text[]) ORDER BY created_at, id;

-- load_histories: of these executions, each in order
SELECT aggregate_id, sequence, entry FROM audit_log
WHERE aggregate_id = ANY ($1::text[])
ORDER BY aggregate_id, sequence, ordinal;

-- list_limits: the concurrency keys of a partition that somebody holds or waits for
SELECT aggregate_id, entry FROM limit_log WHERE partition = $1 ORDER BY sequence, ordinal;

-- take_finished: roots that ended in this state before then, and of which nothing runs any more
SELECT id FROM executions AS root
WHERE is_root AND state = $1 AND finished_at < $2
    AND NOT EXISTS (
        SELECT 1 FROM executions AS child
        WHERE child.id >= root.id || '.' AND child.id < root.id || '/'
            AND child.state IN ('PENDING', 'RUNNING')
    )
ORDER BY finished_at LIMIT $3
FOR UPDATE SKIP LOCKED;

-- delete_nodes: of a tree
DELETE FROM node_executions WHERE execution_id = $1 OR (execution_id >= $2 AND execution_id < $3);

-- delete_audit_log: of a tree
DELETE FROM audit_log WHERE aggregate_id = $1 OR (aggregate_id >= $2 AND aggregate_id < $3);

-- delete_commands: of a tree
DELETE FROM commands WHERE execution_id = $1 OR (execution_id >= $2 AND execution_id < $3);

-- delete_dead_letters: of a tree
DELETE FROM dead_letters WHERE execution_id = $1 OR (execution_id >= $2 AND execution_id < $3);

-- delete_executions: of a tree
DELETE FROM executions WHERE id = $1 OR (id >= $2 AND id < $3);

-- get_record: one, with its revision
SELECT key, data, revision FROM records WHERE kind = $1 AND key = $2;

-- list_records: of one kind, by key
SELECT key, data, revision FROM records WHERE kind = $1 AND key > $2 ORDER BY key LIMIT $3;

-- add_record: unless it is there
INSERT INTO records (kind, key, data) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING
RETURNING revision;

-- put_record: one that has not been changed since
UPDATE records SET data = $3, revision = DEFAULT WHERE kind = $1 AND key = $2 AND revision = $4
RETURNING revision;

-- delete_record: one, of any revision or of this
DELETE FROM records WHERE kind = $1 AND key = $2 AND ($3::bigint IS NULL OR revision = $3);
