-- Small documents of users and services. AUTOINCREMENT, because a revision must never be used
-- again: each change inserts a new row.
CREATE TABLE records (
    revision INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (kind, key)
) STRICT;
