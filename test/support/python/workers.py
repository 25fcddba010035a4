"""A process of workers that call a third party until SIGTERM: ACCOUNT, THREADS, MAX_AGE (s)."""

import os
import random
import sys
import threading
import time

import timed_vendor  # noqa: F401
import vendor
from sluice import Limits, NotNow, Unavailable

limits = Limits(os.environ["GATEWAY"], os.environ["TOKEN"])
identity = {"account": os.environ["ACCOUNT"]}


def work():
    while True:
        try:
            decision = limits.wait_for("paced", identity, timeout=60, max_age=float(os.environ["MAX_AGE"]))
        except (NotNow, Unavailable) as refusal:
            print(f"{refusal!r}", file=sys.stderr, flush=True)
            time.sleep(random.uniform(0, refusal.retry_after))
            continue
        try:
            status, retry_after, _ = vendor.call(identity["account"], decision["sendBy"])
        except vendor.TooLate:
            print("too late", file=sys.stderr, flush=True)
            limits.refund(decision)
            continue
        if status == 429:
            limits.pause("paced", identity, retry_after=retry_after)


threads = [threading.Thread(target=work) for _ in range(int(os.environ["THREADS"]))]
for thread in threads:
    thread.start()
