"""A web service that runs durable workflows in its own process.

Start it in this folder:

    uvicorn orders:app --port 8100

If the process is killed, its orders continue when it starts again. With several processes
(`--workers 4`), a living process takes over the orders of a dead one within seconds.
"""

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request

import runnel
from runnel import Engine, task, workflow


@dataclass
class Order:
    product: str
    pieces: int = 1
    packing_s: float = 0.0


@dataclass
class Parcel:
    content: str
    approved_by: str


@task
def reserve(order: Order) -> int:
    return order.pieces


@task
async def pack(order: Order, pieces: int) -> str:
    await asyncio.sleep(order.packing_s)
    return f"{pieces} x {order.product}"


@task
def send(content: str, approval: Any) -> Parcel:
    return Parcel(content, approval["by"])


@workflow
def ship(order: Order) -> Parcel:
    content = pack(order, reserve(order))
    return send(content, runnel.wait_for_signal("approve"))


app = FastAPI(lifespan=runnel.lifespan())


def get_engine(request: Request) -> Engine:
    engine: Engine = request.state.engine
    return engine


OpenEngine = Annotated[Engine, Depends(get_engine)]


@app.post("/orders", status_code=202)
async def create(order: Order, engine: OpenEngine) -> dict[str, str]:
    """Answers as soon as the order is stored."""
    return {"id": await engine.submit(ship, order)}


@app.post("/orders/{order_id}/approve")
async def approve(order_id: str, by: str, engine: OpenEngine) -> None:
    try:
        await engine.signal(order_id, "approve", {"by": by})
    except runnel.errors.NotFoundError as error:
        raise HTTPException(404, str(error)) from error


@app.get("/orders/{order_id}")
async def show(order_id: str, engine: OpenEngine) -> dict[str, Any]:
    try:
        execution = await engine.get(order_id)
    except runnel.errors.NotFoundError as error:
        raise HTTPException(404, str(error)) from error
    nodes = {node_id: node.status for node_id, node in execution.nodes.items()}
    return {"status": execution.status, "nodes": nodes, "parcel": execution.output}
