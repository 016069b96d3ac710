"""Implementations of the Telemetry port: logs and metrics. Also masks secrets in texts."""
