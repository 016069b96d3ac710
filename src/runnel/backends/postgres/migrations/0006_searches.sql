-- Indexes for searches in lists of executions. The first index covers labels, for executions that
-- have labels. jsonb can't store NUL, which a label can contain.
CREATE INDEX executions_by_label ON executions
    USING gin ((replace(labels, '\u0000', '\ufffd')::jsonb) jsonb_path_ops)
    WHERE labels <> '{}';
CREATE INDEX executions_by_rerun ON executions (rerun_of, created_at DESC, id DESC)
    WHERE rerun_of IS NOT NULL;
CREATE INDEX executions_by_parent ON executions (parent_id, created_at DESC, id DESC)
    WHERE parent_id IS NOT NULL;
