"""In-memory parts that the single-machine backends share: tasks, inboxes, timers, rate buckets."""
