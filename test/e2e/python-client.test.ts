/** What examples/python/sluice.py does when replies are lost, against a server that loses them. */
import { spawnSync } from 'node:child_process'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { PYTHON, runClient } from '../support/api-clients.ts'
import { listen } from '../support/listen.ts'
import { ROOT } from '../support/pages.ts'

const hasPython = spawnSync(PYTHON, ['--version']).status === 0

/** One program for all tests, because Python takes long to start. It prints JSON: what each call has returned or raised. */
const PROGRAM = `
import json, os, threading, sluice
results = {}
class Clock:
    def __init__(self, *times):
        self.times = list(times)
    def monotonic(self):
        return self.times.pop(0) if len(self.times) > 1 else self.times[0]
    def sleep(self, seconds):
        pass
def run(name, call, clock=Clock(0)):
    sluice.time = clock
    limits = sluice.Limits(os.environ["GATEWAY"] + "/" + name, "token", deadline=5)
    try:
        results[name] = call(limits)
    except sluice.SluiceError as error:
        results[name] = [type(error).__name__, getattr(error, "retry_after", None)]
run("lost", lambda limits: limits.decide("sms"))
run("not-sent", lambda limits: limits.decide("sms")["allowed"])
run("settle", lambda limits: sluice.Receipt(limits, {"limit": "llm"}).settle(tokens=731)["applied"])
run("tomorrow", lambda limits: limits.wait_for("sms", timeout=30))
run("now", lambda limits: limits.wait_for("sms", timeout=0))
run("never", lambda limits: limits.wait_for("sms", cost=9))
run("header", lambda limits: limits.pause("sms", {"account": "42"}, "Wed, 21 Oct 2026 07:28:00 GMT"))
run("seconds", lambda limits: limits.pause("sms", {"account": "42"}, 1.5))
run("late", lambda limits: limits.wait_for("sms", max_age=0.5)["id"], Clock(0, 0, 1))
renewed = threading.Event()
def hold(limits):
    with limits.acquire("sms", timeout=9) as decision:
        renewed.wait(0.3)
    return decision["receipt"]
run("held", hold)
run("not-held", hold)
run("away", lambda limits: limits.wait_for("sms", timeout=30)["allowed"])
run("numbers", lambda limits: limits.decide("sms", numbers={"quota": {"limit": 300, "period": "1m"}})["allowed"])
run("forbidden", lambda limits: limits.resume("sms"))
print(json.dumps(results))
`

type Reply = { status: number; body: object } | 'none'
const allowed = (more: object = {}) => ({
  status: 200,
  body: { allowed: true, limit: 'sms', retryAfterMs: 0, delayMs: 0, receipt: { limit: 'sms' }, ...more },
})
const refused = (retryAfterMs: number) => ({
  status: 200,
  body: { allowed: false, retryAfterMs, delayMs: 0 },
})
const outage = (change: string) => ({
  status: 503,
  body: { type: 'urn:sluice:problem:store-unavailable', change },
})

/** The replies to the requests of each call, in order. */
const REPLIES: Record<string, Reply[]> = {
  lost: ['none'],
  'not-sent': [outage('none'), allowed()],
  settle: ['none', outage('unknown'), { status: 200, body: { applied: true } }],
  tomorrow: [refused(86_400_000)],
  now: [refused(100)],
  never: [refused(-1)],
  header: [{ status: 200, body: {} }],
  seconds: [{ status: 200, body: {} }],
  late: [allowed({ id: 1 }), { status: 200, body: {} }, allowed({ id: 2 })],
  held: [allowed({ renewWithinMs: 150 })],
  'not-held': [allowed()],
  away: ['none', outage('unknown'), { status: 200, body: { allowed: false } }, allowed()],
  numbers: [allowed()],
  forbidden: [{ status: 403, body: {} }],
}

describe.skipIf(!hasPython)(`sluice.py${hasPython ? '' : ' (skipped: python3 is not installed)'}`, () => {
  const requests: { call: string; path: string; body: unknown }[] = []
  let results: Record<string, unknown>
  let server: Server
  beforeAll(async () => {
    server = createServer(async (request, response) => {
      const [, call, , , , ...path] = request.url!.split('/')
      const body = JSON.parse(Buffer.concat(await request.toArray()).toString())
      requests.push({ call: call!, path: path.join('/'), body })
      // Of renewals and releases, the first reply is lost.
      const isRepeated =
        requests.filter(each => each.call === call && each.path === path.join('/')).length > 1
      const usual = isRepeated ? { status: 200, body: {} } : 'none'
      const reply = REPLIES[call!]!.shift() ?? usual
      if (reply === 'none') request.socket.destroy()
      else response.writeHead(reply.status).end(JSON.stringify(reply.body))
    })
    await listen(server, 0)
    const env = {
      GATEWAY: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
      ...{ PYTHONPATH: join(ROOT, 'examples/python'), PYTHONDONTWRITEBYTECODE: '1' },
    }
    results = JSON.parse(await runClient(PYTHON, ['-c', PROGRAM], env))
  })
  afterAll(() => server.close())

  const sent = (call: string) => requests.filter(each => each.call === call).map(({ path }) => path)

  it('asks once if the reply to a decision is lost, because a repeat could spend twice', () => {
    expect([results.lost, sent('lost')]).toEqual([['Unavailable', 1], ['sms']])
  })

  it('repeats a decision that was certainly not made', () => {
    expect([results['not-sent'], sent('not-sent')]).toEqual([true, ['sms', 'sms']])
  })

  it('repeats a settlement until it is confirmed', () => {
    expect([results.settle, sent('settle')]).toEqual([true, Array(3).fill('llm/settle')])
  })

  it('raises at once if the units are not due within the timeout, or never', () => {
    expect(results).toMatchObject({
      tomorrow: ['NotNow', 86_400],
      now: ['NotNow', 0.1],
      never: ['Never', null],
    })
  })

  it('passes on a header Retry-After as it is, and seconds as milliseconds', () => {
    const bodies = requests.filter(({ path }) => path === 'sms/pause').map(({ body }) => body)
    const identity = { account: '42' }
    expect(bodies).toEqual([
      { identity, retryAfter: 'Wed, 21 Oct 2026 07:28:00 GMT' },
      { identity, forMs: 1500 },
    ])
  })

  it('sends the numbers of the call', () => {
    expect(results.numbers).toBe(true)
    const numbers = { quota: { limit: 300, period: '1m' } }
    expect(requests.find(({ call }) => call === 'numbers')!.body).toEqual({ identity: {}, cost: 1, numbers })
  })

  it('gives units back whose decision arrives late, and asks again', () => {
    expect([results.late, sent('late')]).toEqual([2, ['sms', 'sms/refund', 'sms']])
  })

  it('holds units in flight while a block runs, renews them, and releases them, also if replies are lost', () => {
    const [decide, ...others] = sent('held')
    expect([results.held, decide]).toEqual([{ limit: 'sms' }, 'sms'])
    expect(requests.find(({ call }) => call === 'held')!.body).toMatchObject({ hold: true, waitMs: 2500 })
    expect(others.filter(path => path === 'sms/renew').length).toBeGreaterThan(1)
    expect(others.filter(path => path === 'sms/release')).toHaveLength(2)
    expect([results['not-held'], sent('not-held')]).toEqual([{ limit: 'sms' }, ['sms']])
  })

  it('asks what spends nothing until the gateway answers again, because a lost decision can spend', () => {
    expect([results.away, sent('away')]).toEqual([true, ['sms', 'sms/peek', 'sms/peek', 'sms']])
  })

  it('does not repeat what the gateway does not accept', () => {
    expect([results.forbidden, sent('forbidden')]).toEqual([['Mistake', null], ['sms/resume']])
  })
})
