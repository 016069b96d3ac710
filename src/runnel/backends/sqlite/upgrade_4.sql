-- The changes of the last commits, one entry each. The first entry distinguishes this file from
-- others.
CREATE TABLE feed (
    id INTEGER PRIMARY KEY,
    changes TEXT NOT NULL
) STRICT;
INSERT INTO feed (changes) VALUES ('!' || hex(randomblob(8)));
