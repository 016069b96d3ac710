"""A saga: what was booked is given back when anything else fails, and somebody is told in any case.

With `on_failure="continue"` what is under way comes to its end: it is known what was booked.
`runnel rerun @last --all` books anew; without --all, what was given back would be taken over.

    $ runnel run examples/saga.py --input city=Rome
    [
      "flight to Rome",
      "hotel in Rome"
    ]
    $ runnel run examples/saga.py --input city=Atlantis
    …
    trip failed in …: NodeFailed: node 'book_hotel' failed: ValueError: no room in Atlantis
    …
    $ runnel show @last
    …
    ✓ book_flight  COMPLETED  …  1         "flight to Atlantis"
    ✗ book_hotel   FAILED     …  1         ValueError: no room in Atlantis
    ↷ pay          SKIPPED … dependency failed
    ✓ give_back    COMPLETED  …  1         "flight to Atlantis given back"
    ↷ give_back_2  SKIPPED … nothing to give back
    ✓ tell         COMPLETED  …  1         "Atlantis: nothing booked"
    …
"""

from typing import Any

from runnel import Skip, task, workflow


@task
def book_flight(city: str) -> str:
    return f"flight to {city}"


@task
def book_hotel(city: str) -> str:
    if city == "Atlantis":
        raise ValueError(f"no room in {city}")
    return f"hotel in {city}"


@task
def pay(flight: str, hotel: str) -> list[str]:
    return [flight, hotel]


@task(run_when="all_settled")
def give_back(booked: str | None, paid: list[str] | None) -> str:
    if booked is None or paid is not None:
        raise Skip("nothing to give back")
    return f"{booked} given back"


@task(run_when="all_settled")
def tell(city: str, paid: list[str] | None) -> str:
    return f"{city}: {'all booked' if paid else 'nothing booked'}"


@workflow(on_failure="continue")
def trip(city: str) -> Any:
    flight, hotel = book_flight(city), book_hotel(city)
    paid = pay(flight, hotel)
    give_back(flight, paid)
    give_back(hotel, paid)
    tell(city, paid)
    return paid
