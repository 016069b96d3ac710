"""Tools for tests: a fake clock, and the conformance suite for backends."""
