"""A client of the limits by name of a Sluice gateway. Python 3.8 or newer, and nothing else. Copy this file.

    limits = Limits("https://gateway.example.com", token)
    limits.wait_for("sms", {"account": "42"}, timeout=30)

All times are in seconds. Threads can share a `Limits`; each has its own connection.
"""

import contextlib
import http.client
import json
import os
import random
import selectors
import threading
import time
import weakref
from urllib.parse import quote, urlsplit

ATTEMPTS = 4
JITTER = 0.01
LONGEST_SLEEP = 60  # Then it looks again: a pause may have been ended.
LONGEST_WAIT = 20  # Of the gateway.


class SluiceError(Exception):
    """An error of this module."""


class NotNow(SluiceError):
    """The limit does not admit this within the timeout. `retry_after`: seconds until it may."""

    def __init__(self, limit, retry_after):
        super().__init__(f"{limit}: not before {retry_after:.3f} s from now")
        self.retry_after = retry_after


class Never(SluiceError):
    """The limit never admits so many units at once."""


class Unavailable(SluiceError):
    """The gateway or its store does not answer. Units may be spent all the same. `retry_after`: seconds."""

    retry_after = 1.0


class Mistake(SluiceError):
    """The gateway does not accept the request, so a repeat fails as well. The message says what to do."""


class Limits:
    """url: of the gateway. token: a service token with `limits:use`. deadline: for one reply (s)."""

    def __init__(self, url, token, deadline=10.0):
        self._url = urlsplit(url)
        self._headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "User-Agent": "sluice.py",  # Cloudflare may refuse Python-urllib.
        }
        self._deadline = deadline
        self._local = threading.local()
        self._turns = weakref.WeakValueDictionary()
        self._guard = threading.Lock()

    def decide(self, limit, identity=None, cost=1, amounts=None, numbers=None):
        """Decides once, and spends units if all rules allow it. Returns the decision: `allowed`, `retryAfterMs`, `rules`, `receipt`.

        cost: requests. amounts: other units, as in `{"tokens": 731}`. numbers: of rules with `numbers: 'call'`, as in
        `{"quota": {"limit": 300, "period": "1m"}}`; the token needs the scope limits:numbers. If the reply is lost, this raises Unavailable and does not
        ask again, because that could spend twice.
        """
        return self._post(limit, "", _body(identity, cost, amounts, numbers), is_repeatable=False)

    def wait_for(self, limit, identity=None, cost=1, amounts=None, timeout=30.0, max_age=None, numbers=None):
        """Waits for units and spends them. Returns the decision.

        timeout (s): if they are not due by then, it raises NotNow at once. With 0, it does not wait. The threads of a process that
        wait for one identity ask one after another. After an outage, it asks again: units whose reply was lost stay spent.
        max_age (s): it gives back units whose decision took longer to arrive, and asks again. Do not begin the call after
        `decision["sendBy"]`, by time.monotonic(): a worker can be stopped before it calls.
        """
        return self._wait(limit, "", _body(identity, cost, amounts, numbers), timeout, max_age)

    @contextlib.contextmanager
    def acquire(self, limit, identity=None, cost=1, timeout=30.0, numbers=None):
        """Holds units in flight (rules with the algorithm concurrency) while a block runs. Waits like `wait_for`.

            with limits.acquire("exports", {"account": "42"}):
                export()

        A thread renews them. If the gateway does not answer for their ttl, they are counted as free, and the block runs on.
        """
        decision = self._wait(limit, "", {**_body(identity, cost, None, numbers), "hold": True}, timeout, None)
        if "renewWithinMs" not in decision:  # Nothing is counted: not by this limit, or not while its store is away.
            yield decision
            return
        over = threading.Event()
        threading.Thread(target=self._renew, args=(decision, over), daemon=True).start()
        try:
            yield decision
        finally:
            over.set()
            with contextlib.suppress(SluiceError):  # Then they are free after their ttl.
                self._post(limit, "/release", {"receipt": decision["receipt"]})

    def reserve(self, limit, identity=None, amounts=None, cost=1, timeout=0.0, max_age=None, numbers=None):
        """Reserves amounts that are known only later, as in `{"tokens": 2000}`. Returns a Receipt. Waits like `wait_for`."""
        decision = self._wait(limit, "/reserve", _body(identity, cost, amounts, numbers), timeout, max_age)
        return Receipt(self, decision["receipt"], decision["sendBy"])

    def refund(self, decision):
        """Gives back the units of a decision, once."""
        return self._post(decision["limit"], "/refund", {"receipt": decision["receipt"]})

    def pause(self, limit, identity=None, retry_after=30.0):
        """Refuses all calls until a third party wants them again. retry_after: its header Retry-After, or seconds."""
        length = {"retryAfter": retry_after} if isinstance(retry_after, str) else {"forMs": round(retry_after * 1000)}
        return self._post(limit, "/pause", {"identity": identity or {}, **length})

    def resume(self, limit, identity=None):
        """Ends a pause."""
        return self._post(limit, "/resume", {"identity": identity or {}})

    def _renew(self, decision, over):
        while not over.wait(decision["renewWithinMs"] / 3000):
            with contextlib.suppress(SluiceError):
                self._post(decision["limit"], "/renew", {"receipt": decision["receipt"]})

    def _wait(self, limit, action, body, timeout, max_age):
        until = time.monotonic() + timeout
        turn = self._turn_of(limit, body["identity"]) if timeout > 0 else threading.Lock()  # Else it asks at once.
        if not turn.acquire(timeout=timeout):
            raise NotNow(limit, 1.0)
        try:
            decision = self._ask(limit, action, body, until, max_age)
        finally:
            turn.release()
        time.sleep(decision["delayMs"] / 1000)  # Only of the algorithm leaky-bucket.
        return decision

    def _ask(self, limit, action, body, until, max_age):
        is_away = False
        while True:
            try:
                if is_away:  # A decision whose reply is lost can spend, and a peek cannot.
                    peek = {name: body[name] for name in ("identity", "numbers") if name in body}
                    self._post(limit, "/peek", peek, is_repeatable=False)
                    is_away = False
                send_by = time.monotonic() + (float("inf") if max_age is None else max_age)
                if "hold" in body:  # The gateway sees first when others release units.
                    body["waitMs"] = round(1000 * max(0, min(until - time.monotonic(), self._deadline / 2, LONGEST_WAIT)))
                decision = self._post(limit, action, body, is_repeatable=False)
            except Unavailable as failure:
                refusal, is_away = failure, True
            else:
                if decision["allowed"] and time.monotonic() <= send_by:
                    return {**decision, "sendBy": send_by + decision["delayMs"] / 1000}
                if decision["retryAfterMs"] < 0:
                    raise Never(f"{limit} never allows this at once: {json.dumps(body)}")
                refusal = NotNow(limit, _retry_after(decision))
                if decision["allowed"]:
                    self._give_back(decision, action, body)
            if time.monotonic() + refusal.retry_after > until:
                raise refusal
            time.sleep(min(refusal.retry_after, LONGEST_SLEEP) + random.uniform(0, JITTER))

    def _give_back(self, decision, action, body):
        with contextlib.suppress(Unavailable):  # Then they stay spent, and less is used.
            if action == "/reserve":
                Receipt(self, decision["receipt"]).settle(**dict.fromkeys(body.get("amounts", {}), 0))
            self.refund(decision)

    def _turn_of(self, limit, identity):
        with self._guard:
            return self._turns.setdefault(f"{limit} {json.dumps(identity, sort_keys=True)}", threading.Lock())

    def _post(self, limit, action, body, is_repeatable=True):
        """Repeats a request if that cannot have an effect twice."""
        path = f"{self._url.path.rstrip('/')}/_sluice/v1/limits/{quote(limit, '')}{action}"
        for attempt in range(ATTEMPTS):
            time.sleep(random.uniform(0.05, 0.1) * 2**attempt if attempt else 0)
            unknown, connection = False, None
            try:
                connection = self._connection()
                unknown = True  # From here on, the request may take effect.
                connection.request("POST", path, json.dumps(body), self._headers)
                response = connection.getresponse()
                text = response.read().decode()
            except (OSError, http.client.HTTPException) as error:
                if connection:
                    connection.close()
                message = f"The gateway does not answer: {error!r}"
            else:
                if response.status == 200:
                    return json.loads(text)
                if response.status < 500:
                    raise Mistake(f"{response.status}: {text}")
                unknown = '"change":"none"' not in text
                message = f"{response.status}: {text}"
            if unknown and not is_repeatable:
                break
        raise Unavailable(message)

    def _connection(self):
        """The open connection of this thread. A forked process does not use that of its parent."""
        owner, connection = getattr(self._local, "connection", (None, None))
        if owner != os.getpid() or not connection.sock or _is_closed(connection.sock):
            kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
            connection = kind(self._url.hostname, self._url.port, timeout=self._deadline)
            connection.connect()
            self._local.connection = (os.getpid(), connection)
        return connection


class Receipt:
    """A reservation. `data` can be stored as JSON: any process can settle `Receipt(limits, data)`."""

    def __init__(self, limits, data, send_by=float("inf")):
        self.limits, self.data, self.send_by = limits, data, send_by

    def settle(self, **amounts):
        """Replaces the reservation by what the call has cost, as in `settle(tokens=731)`. Only the first call has an effect."""
        return self.limits._post(self.data["limit"], "/settle", {"receipt": self.data, "amounts": amounts})


def _body(identity, cost, amounts, numbers):
    more = {"amounts": amounts, "numbers": numbers}
    return {"identity": identity or {}, "cost": cost, **{name: value for name, value in more.items() if value}}


def _retry_after(decision):
    """Seconds. Units in flight can become free at any moment."""
    refusing = [rule for rule in decision.get("rules", []) if rule["mode"] == "enforce" and not rule["allowed"]]
    seconds = decision["retryAfterMs"] / 1000
    return min(seconds, 0.5) if refusing and all("inFlight" in rule for rule in refusing) else seconds


def _is_closed(sock):
    """Whether the other side has closed a connection on which no reply is due."""
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return bool(selector.select(0))
