-- Of a rerun: the execution whose settled outputs it shares.
ALTER TABLE executions ADD COLUMN rerun_of text COLLATE "C";
CREATE INDEX executions_by_rerun ON executions (rerun_of) WHERE rerun_of IS NOT NULL;
