-- Of a rerun: the execution that it took over from.
ALTER TABLE executions ADD COLUMN rerun_of TEXT;

-- Outputs by what they were made from, for tasks of nodes that have a cache.
CREATE TABLE results (
    key TEXT PRIMARY KEY,
    ends_at REAL NOT NULL,
    data BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX results_by_end ON results (ends_at);
