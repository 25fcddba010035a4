"""A third party, as this example calls it. Without VENDOR, nothing is sent."""

import http.client
import os
import time
from urllib.parse import urlsplit

VENDOR = os.environ.get("VENDOR")


class TooLate(Exception):
    """The call would arrive so late that the third party could count it with later ones. Nothing was sent."""


def call(account, send_by, deadline=10.0):
    """Returns the status, the header Retry-After or None, and the tokens that the call has cost.

    send_by: latest begin, by time.monotonic(). deadline: seconds.
    """
    if not VENDOR:
        print(f"called for {account}", flush=True)
        return 200, None, 731
    url = urlsplit(VENDOR)
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=deadline)
    try:
        connection.connect()
        if time.monotonic() > send_by:
            raise TooLate
        connection.request("POST", f"/{account}")
        response = connection.getresponse()
        response.read()
        return response.status, response.headers["Retry-After"], int(response.headers["X-Tokens"] or 0)
    finally:
        connection.close()
