"""Celery tasks that stay within a third party's limits. Needs celery and redis: celery -A jobs worker -P threads -c 10"""

import os
import random

import vendor
from celery import Celery
from sluice import Limits, NotNow, Unavailable

# The most that a call can cost. Reserve no less: what costs more is not checked.
MAX_TOKENS = 2000
# Below the visibility timeout of the broker (1 h), because Redis delivers a task again that waits longer.
MAX_COUNTDOWN = 600
# How old a decision may be when the call begins (s), see README.md.
MAX_AGE = 0.5

app = Celery("jobs", broker=os.environ.get("BROKER", "redis://127.0.0.1:6379/0"))
app.conf.update(task_acks_late=True, task_ignore_result=True)
limits = Limits(os.environ.get("GATEWAY", "http://127.0.0.1:8787"), os.environ["TOKEN"])


@app.task(bind=True, max_retries=None)
def ask(self, account):
    """A task that may not run now goes back to the queue. Its worker takes the next one."""
    identity = {"account": account}
    try:
        units = limits.reserve("vendor", identity, {"tokens": MAX_TOKENS}, max_age=MAX_AGE)
    except (NotNow, Unavailable) as refusal:
        raise later(self, refusal.retry_after) from None
    try:
        status, retry_after, tokens = vendor.call(account, units.send_by)
    except vendor.TooLate:
        units.settle(tokens=0)
        raise later(self, 0) from None
    if status == 429:
        paused = limits.pause("vendor", identity, retry_after=retry_after or 30)
        units.settle(tokens=0)
        raise later(self, paused["retryAfterMs"] / 1000)
    units.settle(tokens=tokens)


def later(task, seconds):
    """Spread, so that tasks do not come back all at once."""
    return task.retry(countdown=min(seconds, MAX_COUNTDOWN) + random.uniform(0, 1))
