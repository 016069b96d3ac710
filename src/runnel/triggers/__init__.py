"""Triggers start executions: a schedule at each tick, a webhook at each delivery.

Schedules and webhooks are stored as records. The execution id is derived from the tick or the
delivery. So if two processes handle the same tick or delivery, only one execution starts.
"""
