-- Of a rerun: the execution that it took over from.
ALTER TABLE executions ADD COLUMN rerun_of text COLLATE "C";
