-- The execution that a rerun reuses results from.
ALTER TABLE executions ADD COLUMN rerun_of text COLLATE "C";
