"""The owner of partitions: reads their inboxes, decides, commits."""
