"""The steps of demo.yaml: plain sync and async functions that sleep instead of real work."""

import asyncio
import time

from runnel import Context


async def read_orders() -> list[dict[str, float]]:
    await asyncio.sleep(1.2)
    return [{"amount": 19.9}, {"amount": 5.0}, {"amount": 42.5}, {"amount": 7.3}]


def read_weather(ctx: Context) -> str:
    """Fails the first attempt, like an unreliable service. The second attempt succeeds."""
    time.sleep(0.6)
    if ctx.attempt == 1:
        raise ConnectionError("weather.example did not answer")
    return "sunny"


async def read_stock() -> dict[str, object]:
    await asyncio.sleep(0.7)
    fruits = "apple banana cherry date elderberry fig grape lemon mango nectarine orange papaya"
    return {"products": fruits.split(), "missing": 0}


async def look_up_price(product: str) -> dict[str, object]:
    await asyncio.sleep(0.2 + 0.04 * len(product))
    return {"product": product, "price": len(product) * 0.25}


def raise_alarm(missing: int) -> str:
    return f"order {missing} products"


def write_report(
    revenue: dict[str, float], weather: str, prices: list[dict[str, float]]
) -> dict[str, object]:
    time.sleep(0.6)
    return {
        "orders": revenue["orders"],
        "revenue": round(revenue["total"], 2),
        "weather": weather,
        "products": len(prices),
        "dearest": max(prices, key=lambda entry: entry["price"])["product"],
    }
