-- Records: small values of users and services. A revision is never assigned twice.
CREATE TABLE records (
    kind text COLLATE "C" NOT NULL,
    key bytea NOT NULL,
    data bytea NOT NULL,
    revision bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (kind, key)
);
