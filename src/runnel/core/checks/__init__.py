"""The parts of validation, one idea a file; `runnel.core.validation` puts them together."""
