-- Records: small values of users and services. Each change inserts a new row, whose id is the
-- revision. AUTOINCREMENT is needed because a revision must never be used again.
CREATE TABLE records (
    revision INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (kind, key)
) STRICT;
