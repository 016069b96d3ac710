-- The feed: the changes of the last commits, one entry per commit. The first entry distinguishes
-- this file from other files.
CREATE TABLE feed (
    id INTEGER PRIMARY KEY,
    changes TEXT NOT NULL
) STRICT;
INSERT INTO feed (changes) VALUES ('!' || hex(randomblob(8)));
