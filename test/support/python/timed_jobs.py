"""The tasks of examples/python/jobs.py. Each call also says when it had to begin."""

import timed_vendor
from jobs import app

__all__ = ["app", "timed_vendor"]
