"""Wiring: the only place that knows which parts there are."""
