-- add_partition: makes a partition known; one that is known stays as it is
INSERT INTO partitions (partition) VALUES (?) ON CONFLICT DO NOTHING;

-- list_partitions: all that exist, lowest first
SELECT partition FROM partitions ORDER BY partition;

-- get_lease: the lease as last written; the kernel lock tells whether it is still held
SELECT owner, epoch, counter FROM partitions WHERE partition = ?;

-- get_fence: what a commit was expected to name
SELECT epoch, sequence FROM partitions WHERE partition = ?;

-- acquire: a new turn: epoch and nonce shut every former owner out
UPDATE partitions SET owner = ?, nonce = ?, epoch = epoch + 1
WHERE partition = ?
RETURNING epoch, sequence;

-- renew: moves the counter of the current lease
UPDATE partitions SET counter = counter + 1 WHERE partition = ? AND epoch = ? AND nonce = ?;

-- release: no nonce is empty, so nobody can commit until the next turn
UPDATE partitions SET owner = '', nonce = '' WHERE partition = ? AND epoch = ? AND nonce = ?;

-- fence: the one statement that lets a commit through
UPDATE partitions SET sequence = sequence + 1
WHERE partition = ? AND epoch = ? AND nonce = ? AND sequence = ?;

-- has_work: whether a free partition waits for somebody to take it over
SELECT EXISTS (SELECT 1 FROM messages WHERE partition = ?1)
    OR EXISTS (
        SELECT 1 FROM executions WHERE state IN ('PENDING', 'RUNNING') AND partition = ?1
    );

-- add_history: what a commit did to one aggregate
INSERT INTO history (aggregate_id, sequence, part, partition, entry) VALUES (?, ?, ?, ?, ?);

-- load_history: all of one aggregate, in order
SELECT entry FROM history WHERE aggregate_id = ? ORDER BY sequence, part;

-- load_history_after: what a reader of the first entries has not read yet
SELECT entry FROM history WHERE aggregate_id = ? ORDER BY sequence, part LIMIT -1 OFFSET ?;

-- forget_history: the aggregate holds nothing any more
DELETE FROM history WHERE aggregate_id = ?;

-- add_header: an execution that its owner has not seen yet; a known one is left as it is
INSERT INTO executions (
    id, partition, workflow, version, definition, state,
    created_at, started_at, finished_at, parent_id, labels, error, rerun_of
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING;

-- put_header: a new execution, or the fields that may change of a known one
INSERT INTO executions (
    id, partition, workflow, version, definition, state,
    created_at, started_at, finished_at, parent_id, labels, error, rerun_of
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    workflow = excluded.workflow,
    version = excluded.version,
    definition = excluded.definition,
    state = excluded.state,
    started_at = excluded.started_at,
    finished_at = excluded.finished_at,
    labels = excluded.labels,
    error = excluded.error;

-- change_header: the fields that may change of a known one, by their places in a whole row
UPDATE executions SET
    workflow = ?3,
    version = ?4,
    definition = ?5,
    state = ?6,
    started_at = ?8,
    finished_at = ?9,
    labels = ?11,
    error = ?12
WHERE id = ?1;

-- get_header: one execution
SELECT id, workflow, version, definition, state,
    created_at, started_at, finished_at, parent_id, labels, error, rerun_of
FROM executions WHERE id = ?;

-- get_home: the partition that an execution lives in
SELECT partition FROM executions WHERE id = ?;

-- list_running: what a new owner has to look at, oldest first
SELECT id FROM executions
WHERE state = 'RUNNING' AND partition = ?
ORDER BY created_at, id;

-- list_headers: the newest behind a place, in any state
SELECT id, workflow, version, definition, state,
    created_at, started_at, finished_at, parent_id, labels, error, rerun_of
FROM executions
WHERE (created_at, id) < (:created_at, :id) AND created_at >= :created_from
    AND (:workflow IS NULL OR workflow = :workflow)
    AND (:rerun_of IS NULL OR rerun_of = :rerun_of)
    AND (:with_children OR parent_id IS NULL)
ORDER BY created_at DESC, id DESC
LIMIT :limit;

-- list_headers_in_state: the same in one state
SELECT id, workflow, version, definition, state,
    created_at, started_at, finished_at, parent_id, labels, error, rerun_of
FROM executions
WHERE state = :state
    AND (created_at, id) < (:created_at, :id) AND created_at >= :created_from
    AND (:workflow IS NULL OR workflow = :workflow)
    AND (:rerun_of IS NULL OR rerun_of = :rerun_of)
    AND (:with_children OR parent_id IS NULL)
ORDER BY created_at DESC, id DESC
LIMIT :limit;

-- list_children: the same of one parent, whose id theirs begin with: the plus keeps to that index
SELECT id, workflow, version, definition, state,
    created_at, started_at, finished_at, parent_id, labels, error, rerun_of
FROM executions
WHERE id > :parent || '.' AND id < :parent || '/' AND parent_id = :parent
    AND (+created_at, id) < (:created_at, :id) AND +created_at >= :created_from
ORDER BY +created_at DESC, id DESC
LIMIT :limit;

-- count_in_state: of the newest, how many were looked at, and how many of these are wanted
SELECT count(*), coalesce(sum(
    (:workflow IS NULL OR workflow = :workflow) AND (:with_children OR parent_id IS NULL)
), 0)
FROM (
    SELECT workflow, parent_id FROM executions
    WHERE state = :state
        AND (created_at, id) < (:created_at, :id) AND created_at >= :created_from
    ORDER BY created_at DESC, id DESC
    LIMIT :limit
);

-- find_ids: ids between the prefix and the last one that begins with it
SELECT id FROM executions
WHERE id >= :prefix AND id < :end AND (:with_children OR instr(id, '.') = 0)
ORDER BY id
LIMIT :limit;

-- get_version: of content that is stored already; one below zero was deleted
SELECT version FROM definitions WHERE hash = ? AND version > 0;

-- add_definition: under the next version of its name, also what was deleted
INSERT INTO definitions (hash, name, version, document)
SELECT ?1, ?2, coalesce(max(abs(version)), 0) + 1, ?3 FROM definitions WHERE name = ?2
ON CONFLICT (hash) DO UPDATE SET version = excluded.version
RETURNING version;

-- delete_versions: from lists and look-ups by name; executions still have theirs
UPDATE definitions SET version = -version WHERE name = ? AND version > 0;

-- list_workflows: the newest version of each, by name
SELECT hash, name, version, document FROM definitions AS newest
WHERE name > ? AND version > 0
    AND version = (SELECT max(version) FROM definitions WHERE name = newest.name)
ORDER BY name
LIMIT ?;

-- list_versions: of one name, newest first
SELECT hash, name, version, document FROM definitions
WHERE name = ? AND version > 0 ORDER BY version DESC LIMIT ?;

-- find_version: one of a name
SELECT hash, name, version, document FROM definitions
WHERE name = ? AND version = ? AND version > 0;

-- get_definition: by content
SELECT hash, name, abs(version), document FROM definitions WHERE hash = ?;

-- set_timer: one per key; setting it again moves it
INSERT INTO timers (partition, execution_id, node_id, item, kind, due, attempt)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET due = excluded.due, attempt = excluded.attempt;

-- clear_timer: one that was never set is not missed
DELETE FROM timers
WHERE partition = ? AND execution_id = ? AND node_id = ? AND item = ? AND kind = ?;

-- list_timers: all of a partition, for its new owner
SELECT execution_id, node_id, item, kind, due, attempt FROM timers
WHERE partition = ? ORDER BY due;

-- last_message: the highest id that was ever given
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'messages'), 0);

-- add_message: for the owner of a partition
INSERT INTO messages (id, partition, body) VALUES (?, ?, ?);

-- list_messages: those behind the last one seen, in order
SELECT id, body FROM messages WHERE partition = ? AND id > ? ORDER BY id;

-- list_messages_before: those that other processes sent before ours, in order
SELECT id, body FROM messages WHERE partition = ? AND id > ? AND id < ? ORDER BY id;

-- consume_messages: the owner has acted on all up to this one
DELETE FROM messages WHERE partition = ? AND id <= ?;

-- add_dead_letter: a task that needs a person
INSERT INTO dead_letters (rejected_at, body) VALUES (?, ?);

-- list_dead_letters: one page, newest first
SELECT body FROM dead_letters
WHERE rejected_at < :before
    AND (:queue IS NULL OR json_extract(CAST(body AS TEXT), '$.queue') = :queue)
    AND (:workflow IS NULL OR json_extract(CAST(body AS TEXT), '$.workflow') = :workflow)
    AND (:execution = '' OR (
        json_extract(CAST(body AS TEXT), '$.token[0]') >= :execution
        AND json_extract(CAST(body AS TEXT), '$.token[0]') < :end
    ))
    AND (rejected_at, body) < (:at, :body)
ORDER BY rejected_at DESC, body DESC
LIMIT :limit;

-- count_dead_letters: all that are wanted
SELECT count(*) FROM dead_letters
WHERE rejected_at < :before
    AND (:queue IS NULL OR json_extract(CAST(body AS TEXT), '$.queue') = :queue)
    AND (:workflow IS NULL OR json_extract(CAST(body AS TEXT), '$.workflow') = :workflow)
    AND (:execution = '' OR (
        json_extract(CAST(body AS TEXT), '$.token[0]') >= :execution
        AND json_extract(CAST(body AS TEXT), '$.token[0]') < :end
    ));

-- delete_dead_letter: one, by its age and its bytes
DELETE FROM dead_letters WHERE rejected_at = ? AND body = ?;

-- get_result: one whose time is not over
SELECT data FROM results WHERE key = ? AND ends_at > ?;

-- put_result: for so long
INSERT INTO results (key, ends_at, data) VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET ends_at = excluded.ends_at, data = excluded.data;

-- delete_results: a few whose time is over
DELETE FROM results WHERE key IN (SELECT key FROM results WHERE ends_at <= ? LIMIT ?);

-- get_bucket: when a rate bucket is full again
SELECT full_at FROM buckets WHERE tag = ?;

-- put_bucket: after a token was taken
INSERT INTO buckets (tag, full_at) VALUES (?, ?)
ON CONFLICT DO UPDATE SET full_at = excluded.full_at;

-- list_finished: roots that ended in this state before then, and of which nothing runs any more
SELECT id FROM executions AS root
WHERE state = :state AND finished_at < :before AND parent_id IS NULL
    AND NOT EXISTS (
        SELECT 1 FROM executions AS child
        WHERE child.id >= root.id || '.' AND child.id < root.id || '/'
            AND child.state IN ('PENDING', 'RUNNING')
    )
ORDER BY created_at
LIMIT :limit;

-- list_tree: an execution and all below it
SELECT id FROM executions WHERE id = :root OR (id >= :first AND id < :end);

-- delete_histories: of a tree
DELETE FROM history
WHERE aggregate_id = :root OR (aggregate_id >= :first AND aggregate_id < :end);

-- delete_letters: of a tree
DELETE FROM dead_letters
WHERE json_extract(CAST(body AS TEXT), '$.token[0]') = :root
    OR (json_extract(CAST(body AS TEXT), '$.token[0]') >= :first
        AND json_extract(CAST(body AS TEXT), '$.token[0]') < :end);

-- delete_executions: of a tree
DELETE FROM executions WHERE id = :root OR (id >= :first AND id < :end);

-- get_record: one, with its revision
SELECT key, data, revision FROM records WHERE kind = ? AND key = ?;

-- list_records: of one kind, by key
SELECT key, data, revision FROM records WHERE kind = ? AND key > ? ORDER BY key LIMIT ?;

-- get_revision: of one record
SELECT revision FROM records WHERE kind = ? AND key = ?;

-- add_record: with a revision that no record ever had
INSERT INTO records (kind, key, data) VALUES (?, ?, ?) RETURNING revision;

-- delete_record: one
DELETE FROM records WHERE kind = ? AND key = ?;

-- add_feed_entry: what one commit or submit has changed
INSERT INTO feed (changes) VALUES (?);

-- trim_feed: all up to an entry that is old enough
DELETE FROM feed WHERE id <= ?;

-- last_feed_entry: there always is one
SELECT id, changes FROM feed ORDER BY id DESC LIMIT 1;

-- list_feed: some, from this one on
SELECT id, changes FROM feed WHERE id >= ? ORDER BY id LIMIT ?;

-- get_state: of an execution
SELECT state FROM executions WHERE id = ?;
