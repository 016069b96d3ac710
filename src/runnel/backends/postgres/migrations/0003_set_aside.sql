-- Keeps entries that PostgreSQL refuses, so that they do not block the archive.
CREATE TABLE set_aside (
    partition integer NOT NULL,
    sequence bigint NOT NULL,
    kind text NOT NULL,
    ordinal integer NOT NULL,
    digest text NOT NULL,
    aggregate_id bytea NOT NULL,
    body bytea NOT NULL,
    reason text NOT NULL,
    set_aside_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (partition, sequence, kind, ordinal)
);

CREATE INDEX set_aside_by_digest ON set_aside (digest, sequence, ordinal);

ALTER TABLE commands ADD COLUMN problem text;

CREATE INDEX commands_unreadable ON commands (id) WHERE problem IS NOT NULL;
