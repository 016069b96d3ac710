-- A new column holds the execution whose results a rerun reuses.
ALTER TABLE executions ADD COLUMN rerun_of text COLLATE "C";
