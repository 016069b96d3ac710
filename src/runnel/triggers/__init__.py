"""What starts executions by itself: schedules, at their ticks, and webhooks, when they are called.

Both are records; a tick and a delivery make the id of their execution, so that whoever comes
second, in whichever process, starts nothing.
"""
