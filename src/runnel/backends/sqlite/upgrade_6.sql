-- Without these indexes, a list of one workflow or of reruns reads all executions, and so does the
-- search for executions to delete.
CREATE INDEX executions_by_workflow ON executions (workflow, created_at, id);
CREATE INDEX executions_by_rerun ON executions (rerun_of, created_at, id)
WHERE rerun_of IS NOT NULL;
CREATE INDEX executions_finished ON executions (state, finished_at)
WHERE parent_id IS NULL AND finished_at IS NOT NULL;

-- A partition with a submitter receives the executions of programs that run no engine.
ALTER TABLE partitions ADD COLUMN submitter TEXT;
