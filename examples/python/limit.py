"""Sends text messages, at most as many as the limit allows."""

import os

from sluice import Limits

limits = Limits(os.environ.get("GATEWAY", "http://127.0.0.1:8787"), os.environ["TOKEN"])

for number in range(1, 6):
    limits.wait_for("sms", {"account": "42"}, timeout=30)
    print(f"message {number} is sent", flush=True)
