-- Views for users' own queries: JSON as jsonb, times as timestamptz. They read the history, so the
-- archiver writes nothing more. The functions name no table and no function of this schema: a user
-- who may read only the views can call them, with any search path.

-- The text as jsonb. jsonb can't hold the character NUL, which becomes U+FFFD, and numbers of more
-- than 131,072 digits: such a value becomes one text with the JSON.
CREATE FUNCTION archived_json(content text) RETURNS jsonb
LANGUAGE plpgsql STABLE STRICT AS $$
BEGIN
    IF position('\u0000' IN content) = 0 THEN
        RETURN content::jsonb;
    END IF;
    RETURN regexp_replace(content, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g')::jsonb;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN to_jsonb(content);
END
$$;

-- The events of a history entry, in order. An entry that PostgreSQL can't read has none.
CREATE FUNCTION archived_events(entry bytea) RETURNS SETOF json
LANGUAGE plpgsql STABLE STRICT ROWS 4 AS $$
DECLARE
    content text := convert_from(entry, 'UTF8');
BEGIN
    IF position('\u0000' IN content) > 0 THEN
        content := regexp_replace(content, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g');
    END IF;
    RETURN QUERY SELECT json_array_elements(content::json -> 2);
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN;
END
$$;

-- One row for each execution. Large values are read from the blobs.
CREATE VIEW execution_values AS
SELECT
    executions.id AS execution_id,
    executions.workflow,
    executions.version,
    executions.state AS status,
    (
        SELECT coalesce(
            archived_json((value -> 'data')::text),
            (SELECT archived_json(convert_from(data, 'UTF8')) FROM blobs
             WHERE key = replace(value ->> 'blob', '\', '\\'))
        )
        FROM (
            SELECT event -> 'input' AS value
            FROM audit_log
            CROSS JOIN archived_events(audit_log.entry) WITH ORDINALITY AS events (event, place)
            WHERE aggregate_id = executions.id
                AND (position('"type":"ExecutionCreated"'::bytea IN entry) > 0
                    OR position('"type":"ExecutionStarted"'::bytea IN entry) > 0)
                AND event ->> 'type' IN ('ExecutionCreated', 'ExecutionStarted')
                AND json_typeof(event -> 'input') = 'object'
            ORDER BY sequence DESC, ordinal DESC, place DESC
            LIMIT 1
        ) AS newest
    ) AS input,
    (
        SELECT coalesce(
            archived_json((value -> 'data')::text),
            (SELECT archived_json(convert_from(data, 'UTF8')) FROM blobs
             WHERE key = replace(value ->> 'blob', '\', '\\'))
        )
        FROM (
            SELECT event -> 'output' AS value
            FROM audit_log CROSS JOIN archived_events(audit_log.entry) AS events (event)
            WHERE aggregate_id = executions.id
                AND position('"type":"ExecutionFinished"'::bytea IN entry) > 0
                AND event ->> 'type' = 'ExecutionFinished'
                AND json_typeof(event -> 'output') = 'object'
            ORDER BY sequence DESC, ordinal DESC
            LIMIT 1
        ) AS newest
    ) AS output,
    executions.error,
    archived_json(executions.labels) AS labels,
    to_timestamp(executions.created_at) AS created_at,
    to_timestamp(executions.started_at) AS started_at,
    to_timestamp(executions.finished_at) AS finished_at,
    executions.parent_id,
    executions.rerun_of
FROM executions;

-- One row for each node that has begun, and for each item of a map. OFFSET 0 makes PostgreSQL read
-- the history of an execution once, not once for each node.
CREATE VIEW node_values AS
SELECT
    executions.id AS execution_id,
    executions.workflow,
    nodes.node_id,
    nullif(nodes.item, -1) AS item,
    nodes.state AS status,
    nodes.attempts,
    coalesce(
        archived_json((nodes.value -> 'data')::text),
        (SELECT archived_json(convert_from(data, 'UTF8')) FROM blobs
         WHERE key = replace(nodes.value ->> 'blob', '\', '\\'))
    ) AS output,
    nodes.error,
    nodes.worker,
    to_timestamp(nodes.queued_at) AS queued_at,
    to_timestamp(nodes.started_at) AS started_at,
    to_timestamp(nodes.finished_at) AS finished_at
FROM executions
CROSS JOIN LATERAL (
    SELECT node_executions.*, completed.value
    FROM node_executions
    LEFT JOIN (
        SELECT DISTINCT ON (node_id, item)
            results.result ->> 'node' AS node_id,
            coalesce((results.result ->> 'item')::integer, -1) AS item,
            results.result -> 'output' AS value
        FROM audit_log
        CROSS JOIN archived_events(audit_log.entry) WITH ORDINALITY AS events (event, place)
        CROSS JOIN LATERAL (
            SELECT event AS result WHERE event ->> 'type' = 'NodeCompleted'
            UNION ALL
            SELECT json_array_elements(event -> 'taken') WHERE event ->> 'type' = 'NodesTaken'
        ) AS results
        WHERE aggregate_id = executions.id
            AND (position('"type":"NodeCompleted"'::bytea IN entry) > 0
                OR position('"type":"NodesTaken"'::bytea IN entry) > 0)
            AND json_typeof(results.result -> 'output') = 'object'
        ORDER BY node_id, item, sequence DESC, ordinal DESC, place DESC
    ) AS completed USING (node_id, item)
    WHERE node_executions.execution_id = executions.id
    OFFSET 0
) AS nodes;
