"""Sends text messages, at most as many as the limit allows. Needs Python 3.8 or newer, and nothing else."""

import json
import os
import time
import urllib.error
import urllib.request

GATEWAY = os.environ.get("GATEWAY", "http://127.0.0.1:8787")
TOKEN = os.environ["TOKEN"]


def decide(limit, identity, cost=1):
    """Spends `cost` units of the limit, all or nothing. Returns the decision."""
    request = urllib.request.Request(
        f"{GATEWAY}/_sluice/v1/limits/{limit}",
        data=json.dumps({"identity": identity, "cost": cost}).encode(),
        headers={
            "Authorization": f"Bearer {TOKEN}",
            "Content-Type": "application/json",
            # Cloudflare may refuse Python-urllib.
            "User-Agent": "sms-service",
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        # It says what is wrong, and what to do.
        raise RuntimeError(f"{error.code}: {error.read().decode()}") from None


def wait_for(limit, identity, cost=1):
    """Waits until the limit has `cost` units, and spends them."""
    while not (decision := decide(limit, identity, cost))["allowed"]:
        if decision["retryAfterMs"] < 0:
            raise ValueError(f"{limit} never allows {cost} units at once")
        print(f"{limit}: next try in {decision['retryAfterMs']} ms")
        time.sleep(decision["retryAfterMs"] / 1000)
    # Only of the algorithm leaky-bucket; else 0.
    time.sleep(decision["delayMs"] / 1000)


for number in range(1, 4):
    wait_for("sms", {"account": "42"})
    print(f"message {number} is sent")
