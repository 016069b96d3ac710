-- Small documents of users and services; a revision is never assigned twice.
CREATE TABLE records (
    kind text COLLATE "C" NOT NULL,
    key bytea NOT NULL,
    data bytea NOT NULL,
    revision bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (kind, key)
);
