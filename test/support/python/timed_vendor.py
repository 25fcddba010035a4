"""Lets each call of examples/python/vendor.py say when it had to begin."""

import vendor

call = vendor.call
vendor.call = lambda account, send_by: call(f"{account}?{send_by}", send_by)
