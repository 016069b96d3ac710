-- Without this index, deleting an execution reads all dead letters.
CREATE INDEX dead_letters_by_execution ON dead_letters (
    json_extract(CAST(body AS TEXT), '$.token[0]')
);
