-- What the last commits have changed, one entry each; the first one tells this file from another.
CREATE TABLE feed (
    id INTEGER PRIMARY KEY,
    changes TEXT NOT NULL
) STRICT;
INSERT INTO feed (changes) VALUES ('!' || hex(randomblob(8)));
