-- add_partition: adds a partition, unless it exists
INSERT INTO partitions (partition) VALUES (?) ON CONFLICT DO NOTHING;

-- list_partitions: lists all partitions, lowest first
SELECT partition FROM partitions ORDER BY partition;

-- list_partition_fences: lists all partitions with epoch, sequence, and whether they have messages
SELECT
    partition,
    epoch,
    sequence,
    EXISTS (SELECT 1 FROM messages WHERE messages.partition = partitions.partition)
FROM partitions
ORDER BY partition;

-- list_homes: lists the partitions that an engine may use for its own executions, lowest first
SELECT partition FROM partitions WHERE submitter IS NULL ORDER BY partition;

-- list_owners: lists the partitions whose last owner did not release them
SELECT partition, owner FROM partitions WHERE owner <> '' ORDER BY partition;

-- list_submitted: lists the partitions that receive the executions of a submitter, lowest first
SELECT partition FROM partitions WHERE submitter = ? ORDER BY partition;

-- add_submitted: adds a partition that receives the executions of a submitter
INSERT INTO partitions (partition, submitter)
SELECT coalesce(max(partition), -1) + 1, ? FROM partitions
RETURNING partition;

-- get_lease: returns the last stored lease; only the kernel lock shows whether it is still held
SELECT owner, epoch, counter FROM partitions WHERE partition = ?;

-- get_fence: returns the current epoch and sequence, for the error of a fenced commit
SELECT epoch, sequence FROM partitions WHERE partition = ?;

-- acquire: starts a new lease; its epoch and nonce fence out every former owner
UPDATE partitions SET owner = ?, nonce = ?, epoch = epoch + 1
WHERE partition = ?
RETURNING epoch, sequence;

-- renew: increments the counter of the current lease
UPDATE partitions SET counter = counter + 1 WHERE partition = ? AND epoch = ? AND nonce = ?;

-- release: clears the nonce; a nonce is never empty, so no commit passes until the next lease
UPDATE partitions SET owner = '', nonce = '' WHERE partition = ? AND epoch = ? AND nonce = ?;

-- fence: moves the sequence if epoch, nonce and sequence are the expected ones
UPDATE partitions SET sequence = sequence + 1
WHERE partition = ? AND epoch = ? AND nonce = ? AND sequence = ?;

-- has_work: returns 1 if a free partition has work for a new owner
SELECT EXISTS (SELECT 1 FROM messages WHERE partition = ?1)
    OR EXISTS (
        SELECT 1 FROM executions WHERE state IN ('PENDING', 'RUNNING') AND partition = ?1
    );

-- add_history: appends the events of one aggregate and commit
INSERT INTO history (aggregate_id, sequence, part, partition, entry) VALUES (?, ?, ?, ?, ?);

-- load_history: returns all history entries of one aggregate, in order
SELECT entry FROM history WHERE aggregate_id = ? ORDER BY sequence, part;

-- load_history_after: returns the history entries of one aggregate, after skipped entries
SELECT entry FROM history WHERE aggregate_id = ? ORDER BY sequence, part LIMIT -1 OFFSET ?;

-- forget_history: deletes the history of a closed aggregate, such as an unused concurrency key
DELETE FROM history WHERE aggregate_id = ?;

-- add_header: inserts the header of a new execution, unless the header exists
INSERT INTO executions (
    id, partition, workflow, version, definition, state,
    created_at, started_at, finished_at, parent_id, labels, error, rerun_of
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING;

-- put_header: inserts a header, or updates the mutable columns of the existing header
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

-- change_header: updates the mutable columns of a header, numbered as in a full row
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

-- get_header: returns the header of one execution
SELECT id, workflow, version, definition, state,
    created_at, started_at, finished_at, parent_id, labels, error, rerun_of
FROM executions WHERE id = ?;

-- get_home: returns the partition of an execution
SELECT partition FROM executions WHERE id = ?;

-- list_running: lists the running executions of a partition, oldest first, for its new owner
SELECT id FROM executions
WHERE state = 'RUNNING' AND partition = ?
ORDER BY created_at, id;

-- list_headers: lists the newest headers after a position, in any state
SELECT id, workflow, version, definition, state,
    created_at, started_at, finished_at, parent_id, labels, error, rerun_of
FROM executions
WHERE (created_at, id) < (:created_at, :id) AND created_at >= :created_from
    AND (:with_children OR parent_id IS NULL)
ORDER BY created_at DESC, id DESC
LIMIT :limit;

-- list_headers_in_state: lists the newest headers after a position, in one state
SELECT id, workflow, version, definition, state,
    created_at, started_at, finished_at, parent_id, labels, error, rerun_of
FROM executions
WHERE state = :state
    AND (created_at, id) < (:created_at, :id) AND created_at >= :created_from
    AND (:with_children OR parent_id IS NULL)
ORDER BY created_at DESC, id DESC
LIMIT :limit;

-- list_headers_of: lists the newest headers of one workflow after a position, in any state
SELECT id, workflow, version, definition, state,
    created_at, started_at, finished_at, parent_id, labels, error, rerun_of
FROM executions INDEXED BY executions_by_workflow
WHERE workflow = :workflow
    AND (created_at, id) < (:created_at, :id) AND created_at >= :created_from
    AND (:with_children OR parent_id IS NULL)
ORDER BY created_at DESC, id DESC
LIMIT :limit;

-- list_reruns: lists the newest reruns of one execution after a position
SELECT id, workflow, version, definition, state,
    created_at, started_at, finished_at, parent_id, labels, error, rerun_of
FROM executions INDEXED BY executions_by_rerun
WHERE rerun_of = :rerun_of
    AND (created_at, id) < (:created_at, :id) AND created_at >= :created_from
ORDER BY created_at DESC, id DESC
LIMIT :limit;

-- list_children: lists the headers of children by id range; the unary plus forces the index on ids
SELECT id, workflow, version, definition, state,
    created_at, started_at, finished_at, parent_id, labels, error, rerun_of
FROM executions
WHERE id > :parent || '.' AND id < :parent || '/' AND parent_id = :parent
    AND (+created_at, id) < (:created_at, :id) AND +created_at >= :created_from
ORDER BY +created_at DESC, id DESC
LIMIT :limit;

-- count_in_state: returns how many of the newest headers were read, and how many of them match
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

-- count_of_workflow: counts the executions of a workflow per state, among a limited number of them
SELECT state, count(*), sum(:with_children OR parent_id IS NULL)
FROM (
    SELECT state, parent_id FROM executions INDEXED BY executions_by_workflow
    WHERE workflow = :workflow
        AND (created_at, id) < (:created_at, :id) AND created_at >= :created_from
    ORDER BY created_at DESC, id DESC
    LIMIT :limit
)
GROUP BY state;

-- has_more_of_workflow: returns a row if a workflow has more executions than a limit
SELECT 1 FROM executions INDEXED BY executions_by_workflow
WHERE workflow = :workflow
    AND (created_at, id) < (:created_at, :id) AND created_at >= :created_from
LIMIT 1 OFFSET :limit;

-- find_ids: lists the execution ids that begin with a prefix
SELECT id FROM executions
WHERE id >= :prefix AND id < :end AND (:with_children OR instr(id, '.') = 0)
ORDER BY id
LIMIT :limit;

-- get_version: returns the version of a stored definition that was not deleted
SELECT version FROM definitions WHERE hash = ? AND version > 0;

-- add_definition: stores a definition under the next version of its name, even if it was deleted
INSERT INTO definitions (hash, name, version, document)
SELECT ?1, ?2, coalesce(max(abs(version)), 0) + 1, ?3 FROM definitions WHERE name = ?2
ON CONFLICT (hash) DO UPDATE SET version = excluded.version
RETURNING version;

-- delete_versions: marks all versions of a name as deleted; executions still read theirs by hash
UPDATE definitions SET version = -version WHERE name = ? AND version > 0;

-- list_workflows: lists the newest version of each workflow, by name
SELECT hash, name, version, document FROM definitions AS newest
WHERE name > ? AND version > 0
    AND version = (SELECT max(version) FROM definitions WHERE name = newest.name)
ORDER BY name
LIMIT ?;

-- list_versions: lists the versions of one workflow, newest first
SELECT hash, name, version, document FROM definitions
WHERE name = ? AND version > 0 ORDER BY version DESC LIMIT ?;

-- find_version: returns one version of a workflow
SELECT hash, name, version, document FROM definitions
WHERE name = ? AND version = ? AND version > 0;

-- get_definition: returns a definition by its hash
SELECT hash, name, abs(version), document FROM definitions WHERE hash = ?;

-- set_timer: sets the timer of a key; setting it again changes its time
INSERT INTO timers (partition, execution_id, node_id, item, kind, due, attempt)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET due = excluded.due, attempt = excluded.attempt;

-- clear_timer: removes a timer if it is set
DELETE FROM timers
WHERE partition = ? AND execution_id = ? AND node_id = ? AND item = ? AND kind = ?;

-- list_timers: lists all timers of a partition, for its new owner
SELECT execution_id, node_id, item, kind, due, attempt FROM timers
WHERE partition = ? ORDER BY due;

-- last_message: returns the highest message id that was ever assigned
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'messages'), 0);

-- add_message: stores a command for the owner of a partition
INSERT INTO messages (id, partition, body) VALUES (?, ?, ?);

-- list_messages: lists the messages after the last one that was read, in order
SELECT id, body FROM messages WHERE partition = ? AND id > ? ORDER BY id;

-- list_messages_before: lists messages of other processes before a given message, in order
SELECT id, body FROM messages WHERE partition = ? AND id > ? AND id < ? ORDER BY id;

-- consume_messages: deletes the messages up to the last one that a commit consumed
DELETE FROM messages WHERE partition = ? AND id <= ?;

-- add_dead_letter: stores a dead letter, which is a task that needs manual action
INSERT INTO dead_letters (rejected_at, body) VALUES (?, ?);

-- list_dead_letters: lists one page of the dead letters that match a filter, newest first
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

-- count_dead_letters: counts the dead letters that match a filter
SELECT count(*) FROM dead_letters
WHERE rejected_at < :before
    AND (:queue IS NULL OR json_extract(CAST(body AS TEXT), '$.queue') = :queue)
    AND (:workflow IS NULL OR json_extract(CAST(body AS TEXT), '$.workflow') = :workflow)
    AND (:execution = '' OR (
        json_extract(CAST(body AS TEXT), '$.token[0]') >= :execution
        AND json_extract(CAST(body AS TEXT), '$.token[0]') < :end
    ));

-- delete_dead_letter: deletes one dead letter by its time and content
DELETE FROM dead_letters WHERE rejected_at = ? AND body = ?;

-- get_result: returns a cached result that has not expired
SELECT data FROM results WHERE key = ? AND ends_at > ?;

-- put_result: stores a cached result with its expiry time
INSERT INTO results (key, ends_at, data) VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET ends_at = excluded.ends_at, data = excluded.data;

-- delete_results: deletes a limited number of expired results
DELETE FROM results WHERE key IN (SELECT key FROM results WHERE ends_at <= ? LIMIT ?);

-- get_bucket: returns the time when a rate bucket is full again
SELECT full_at FROM buckets WHERE tag = ?;

-- put_bucket: stores a rate bucket after a token was taken
INSERT INTO buckets (tag, full_at) VALUES (?, ?)
ON CONFLICT DO UPDATE SET full_at = excluded.full_at;

-- delete_full_buckets: deletes the rate buckets that are full, which are as good as none
DELETE FROM buckets WHERE full_at <= ?;

-- list_finished: lists root executions that ended in a state before a time, without active children.
-- The plus keeps SQLite from reading all active executions by their state for each root.
SELECT id FROM executions AS root INDEXED BY executions_finished
WHERE state = :state AND finished_at < :before AND parent_id IS NULL
    AND NOT EXISTS (
        SELECT 1 FROM executions AS child
        WHERE child.id >= root.id || '.' AND child.id < root.id || '/'
            AND +child.state IN ('PENDING', 'RUNNING')
    )
ORDER BY finished_at
LIMIT :limit;

-- find_last_descendant: returns the descendant of an execution with the highest id
SELECT id FROM executions WHERE id >= ? AND id < ? ORDER BY id DESC LIMIT 1;

-- find_entry_from_end: returns the sequence of a history entry, counted from the end of the history
SELECT sequence FROM history WHERE aggregate_id = ?
ORDER BY sequence DESC, part DESC LIMIT 1 OFFSET ?;

-- delete_last_entries: deletes the history entries of an aggregate from a sequence on
DELETE FROM history WHERE aggregate_id = ? AND sequence >= ?;

-- delete_letters: deletes the dead letters of an execution
DELETE FROM dead_letters WHERE json_extract(CAST(body AS TEXT), '$.token[0]') = ?;

-- delete_execution: deletes the header of an execution
DELETE FROM executions WHERE id = ?;

-- get_page_counts: returns the pages, the free pages, 2 if the file can shrink, the size of a page
SELECT page_count, freelist_count, auto_vacuum, page_size
FROM pragma_page_count, pragma_freelist_count, pragma_auto_vacuum, pragma_page_size;

-- get_record: returns one record with its revision
SELECT key, data, revision FROM records WHERE kind = ? AND key = ?;

-- list_records: lists the records of one kind, by key
SELECT key, data, revision FROM records WHERE kind = ? AND key > ? ORDER BY key LIMIT ?;

-- get_revision: returns the revision of one record
SELECT revision FROM records WHERE kind = ? AND key = ?;

-- add_record: inserts a record with a revision that was never used before
INSERT INTO records (kind, key, data) VALUES (?, ?, ?) RETURNING revision;

-- delete_record: deletes one record
DELETE FROM records WHERE kind = ? AND key = ?;

-- add_feed_entry: stores the changes of one commit or submit
INSERT INTO feed (changes) VALUES (?);

-- trim_feed: deletes all feed entries up to a given entry
DELETE FROM feed WHERE id <= ?;

-- last_feed_entry: returns the last feed entry; the feed is never empty
SELECT id, changes FROM feed ORDER BY id DESC LIMIT 1;

-- list_feed: lists a limited number of feed entries, starting with a given entry
SELECT id, changes FROM feed WHERE id >= ? ORDER BY id LIMIT ?;

-- get_state: returns the state of an execution
SELECT state FROM executions WHERE id = ?;
