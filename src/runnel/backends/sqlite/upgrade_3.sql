-- Small documents that people and services keep. AUTOINCREMENT, because a revision must never come
-- back: a change is a new row.
CREATE TABLE records (
    revision INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (kind, key)
) STRICT;
