-- Of a rerun: the execution whose settled outputs it shares.
ALTER TABLE executions ADD COLUMN rerun_of TEXT;
CREATE INDEX executions_by_rerun ON executions (rerun_of) WHERE rerun_of IS NOT NULL;

-- Outputs by what they were made from, for tasks of nodes that have a cache.
CREATE TABLE results (
    key TEXT PRIMARY KEY,
    ends_at REAL NOT NULL,
    data BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX results_by_end ON results (ends_at);
