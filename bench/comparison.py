"""How a figure of ours compares with the best of the peers whose joins survive a death."""

from bench.peer_jobs import PEER_PREFIX
from bench.results import BenchmarkResults

NOT_DURABLE = "NOT durable"
HIGHER_IS_BETTER = frozenset({"executions_per_s"})
LOWER_IS_BETTER = frozenset({"edge_ms_p50", "edge_ms_p99", "fan_1000_s"})


def compare_with_best_peer(results: BenchmarkResults, job: str, figure: str) -> float | None:
    """How many times as good; None for a peer, and where no peer has the figure."""
    workload, *configuration = job.split()
    ours = results.compute_median(job, figure)
    if ours is None or PEER_PREFIX in configuration:
        return None
    theirs = [
        value
        for peer, about in results.peers.items()
        if not about.get("joins", "").startswith(NOT_DURABLE)
        and (value := results.compute_median(f"{workload} {PEER_PREFIX} {peer}", figure))
        is not None
    ]
    if not theirs:
        return None
    if figure in HIGHER_IS_BETTER:
        return ours / max(theirs)
    return min(theirs) / ours if figure in LOWER_IS_BETTER else None
