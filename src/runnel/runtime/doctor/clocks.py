"""How far a server's clock may be off."""

from runnel.runtime.doctor.findings import Finding, bad, ok, warn

AHEAD_S_WARN = 0.5
AHEAD_S_BAD = 5.0


def judged_clock(ahead_s: float) -> Finding:
    away_s = abs(ahead_s)
    found = f"{away_s:.2f} s {'ahead of' if ahead_s > 0 else 'behind'} this machine"
    remedy = "synchronise the clocks (NTP): timers and rate limits go by them"
    if away_s > AHEAD_S_BAD:
        return bad("clock", found, remedy)
    return warn("clock", found, remedy) if away_s > AHEAD_S_WARN else ok("clock", found)
