"""Sinks of the Telemetry port: log lines and metrics, without secrets."""
