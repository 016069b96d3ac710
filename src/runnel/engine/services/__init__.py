"""Services: background duties of an orchestrator's process, with one duty and one loop
per module.
"""
