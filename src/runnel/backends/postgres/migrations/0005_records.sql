-- Small documents that people and services keep; a revision is never given twice.
CREATE TABLE records (
    kind text COLLATE "C" NOT NULL,
    key bytea NOT NULL,
    data bytea NOT NULL,
    revision bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (kind, key)
);
