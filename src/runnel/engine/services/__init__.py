"""Services: the background loops of an orchestrator's process. Each module has one service."""
