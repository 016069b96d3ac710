"""The in-memory parts that single-machine backends share: tasks, inboxes, timers, rate buckets."""
