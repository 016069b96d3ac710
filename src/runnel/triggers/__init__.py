"""Triggers start executions: schedules at their ticks, webhooks when they are called.

Both are stored as records. The execution id is derived from the tick or the delivery. So if two
processes handle the same one, only one execution starts.
"""
