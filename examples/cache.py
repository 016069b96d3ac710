"""The same question is asked once: the second run takes its answer from the cache, in no time.

$ runnel run examples/cache.py --input city=Oslo
"Oslo has 4 letters"
$ runnel run examples/cache.py --input city=Oslo
"Oslo has 4 letters"
$ runnel history @last
…
… NodeCompleted      think  output="Oslo has 4 letters" … is_cached=true
…
"""

import time
from typing import Any

from runnel import task, workflow

AN_HOUR = 3600.0


@task(cache=AN_HOUR)
def think(city: str) -> str:
    time.sleep(0.5)
    return f"{city} has {len(city)} letters"


@workflow
def asked(city: str) -> Any:
    return think(city)
