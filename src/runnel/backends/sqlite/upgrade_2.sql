-- A new column holds the execution whose results a rerun reuses.
ALTER TABLE executions ADD COLUMN rerun_of TEXT;

-- Cached outputs by the hash of their inputs, for nodes that have a cache.
CREATE TABLE results (
    key TEXT PRIMARY KEY,
    ends_at REAL NOT NULL,
    data BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX results_by_end ON results (ends_at);
