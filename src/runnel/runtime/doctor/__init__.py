"""Checks what Runnel needs of its surroundings: one finding for each, with what to do about it."""

from runnel.runtime.doctor.examination import examine
from runnel.runtime.doctor.findings import Finding, Verdict

__all__ = ["Finding", "Verdict", "examine"]
