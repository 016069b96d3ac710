"""Caches a result: the second run takes it from the cache instead of running the task.

$ runnel run examples/cache.py --input city=Oslo
"Oslo has 4 letters"
$ runnel run examples/cache.py --input city=Oslo
"Oslo has 4 letters"
$ runnel history @last
…
… NodeCompleted      describe  output="Oslo has 4 letters" … is_cached=true
…
"""

import time
from typing import Any

from runnel import task, workflow

HOUR_S = 3600.0


@task(cache=HOUR_S)
def describe(city: str) -> str:
    time.sleep(0.5)
    return f"{city} has {len(city)} letters"


@workflow
def cities(city: str) -> Any:
    return describe(city)
