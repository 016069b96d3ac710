"""What is not done by executions on one site: takeovers, and an archive that is down."""

from runnel.benchmarks.asked import Asked
from runnel.benchmarks.backlog import archive_down
from runnel.benchmarks.failures import takeovers
from runnel.benchmarks.measuring import Measured, summarised
from runnel.benchmarks.on_servers import Layout, on_servers
from runnel.benchmarks.servers import Servers


async def measure_other(asked: Asked, servers: Servers) -> Measured:
    if asked.workload == "takeover":
        runs = [await takeovers(servers, asked.count) for _ in range(asked.repetitions)]
        return summarised(runs)
    layout = Layout(concurrency=asked.concurrency, workers=asked.workers)
    async with on_servers(servers, layout) as site:
        runs = [await archive_down(site, asked.count) for _ in range(asked.repetitions)]
    return summarised(runs)
