"""A FastAPI service behind the gateway. Needs fastapi and uvicorn: python3 -m uvicorn service:app --port 8000"""

import asyncio
import math
import os

from fastapi import Depends, FastAPI, Header, HTTPException
from sluice import Limits, NotNow, Unavailable

limits = Limits(os.environ.get("GATEWAY", "http://127.0.0.1:8787"), os.environ["TOKEN"])
app = FastAPI()


def consumer_of(x_consumer_id: str = Header(None)):
    """The caller, as the gateway has verified it. It removes this header from requests of clients."""
    if not x_consumer_id:
        raise HTTPException(403, "Send this request to the gateway.")
    return x_consumer_id


@app.get("/me")
async def me(consumer: str = Depends(consumer_of)):
    return {"consumer": consumer}


@app.post("/messages")
async def send_message(consumer: str = Depends(consumer_of)):
    try:
        # In a thread, so that other requests go on meanwhile.
        await asyncio.to_thread(limits.wait_for, "sms", {"account": consumer}, timeout=0.2)
    except NotNow as refusal:
        headers = {"Retry-After": str(math.ceil(refusal.retry_after))}
        raise HTTPException(429, "Too many messages.", headers) from None
    except Unavailable:
        raise HTTPException(503, "Messages cannot be limited now.", {"Retry-After": "1"}) from None
    return {"sent": True}
