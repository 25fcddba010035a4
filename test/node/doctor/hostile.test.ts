/** `npx sluicegate doctor` on servers that answer anything: it ends, reads a bounded part, and shows no text of theirs. */
import { createServer, type RequestListener, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, expect, it } from 'vitest'
import { checkedConfig } from '../../../src/config/check/check.ts'
import { type Bed, runChecks } from '../../../src/node/doctor/checks.ts'
import { gatewayChecks } from '../../../src/node/doctor/gateway.ts'
import { serverChecks } from '../../../src/node/doctor/server.ts'
import { examineStore } from '../../../src/node/doctor/store.ts'
import { examined, found } from '../../support/examinations.ts'
import { listen } from '../../support/listen.ts'

const CONFIG = checkedConfig({
  origin: 'route',
  rules: [{ name: 'all', by: 'global', algorithm: 'gcra', limit: 100, period: '1s' }],
})

const closing: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0)) await close()
})

async function serve(listener: RequestListener): Promise<string> {
  const server = createServer(listener)
  await listen(server, 0)
  closing.push(() => new Promise(resolve => void server.close(() => resolve()).closeAllConnections()))
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

/** Sends a body without an end. @returns the bytes that the connection took */
function sendForEver(response: ServerResponse, status = 200): () => number {
  response.on('error', () => {})
  response.writeHead(status, { 'content-type': 'application/json' })
  const chunk = ' '.repeat(100_000)
  const more = () => void response.write(chunk, error => error ?? more())
  more()
  const { socket } = response
  return () => socket?.bytesWritten ?? 0
}

const examine = async (url: string) =>
  (
    await examined(examination =>
      runChecks(gatewayChecks({ url, path: '/', headers: {}, config: CONFIG }), examination, 'gateway'),
    )
  ).by

const HEALTH = { live: true, ready: true, store: { ok: true, latencyMs: 1 } }

it('a health without an end ends the examination, which has read a small part', async () => {
  let sent = () => 0
  const url = await serve((_, response) => {
    sent = sendForEver(response)
  })
  const by = await examine(url)
  expect(by.health).toMatchObject(found('fault', 'The reply to /_sluice/health has more than 64 kB'))
  expect(Object.keys(by).at(-1)).toBe('health')
  // The rest is what the kernel holds for a reader.
  expect(sent()).toBeLessThan(20_000_000)
})

it('refusals without an end are not read to it', async () => {
  const url = await serve(({ url }, response) => {
    if (url === '/_sluice/health') response.end(JSON.stringify(HEALTH))
    else sendForEver(response, 429)
  })
  expect((await examine(url)).fields).toMatchObject(
    found('fault', 'A refusal (HTTP 429) has more than 64 kB, so it is not of Sluice.'),
  )
})

it.each([undefined, null, '5', '\u001b[31m', {}, -1, [3]])(
  'a health whose latency is %j is not measured by it',
  async latencyMs => {
    const health = { ...HEALTH, store: { ok: true, latencyMs } }
    const by = await examine(await serve((_, response) => void response.end(JSON.stringify(health))))
    expect(by.health).toMatchObject(found('unknown', 'How long a trip to the store takes is not known'))
    expect(Object.keys(by.health!.measured!)).toEqual(['trip_ms'])
  },
)

it.each([
  ['values that are not numbers', '"a";q=5;w=x', '"a";r=y;t=1'],
  ['a window of nothing', '"a";q=5;w=0', '"a";r=5;t=1'],
  ['negative numbers', '"a";q=5;w=60', '"a";r=-5;t=1'],
  ['a burst that is not a number', '"a";q=5;w=60;sluice-burst=?1', '"a";r=5;t=1'],
])('limits with %s are not tried', async (_, policy, state) => {
  let requests = 0
  const url = await serve((_, response) => {
    requests += 1
    response.setHeader('x-request-id', String(requests))
    response.setHeader('ratelimit-policy', policy)
    response.setHeader('ratelimit', state)
    response.end(JSON.stringify(HEALTH))
  })
  const by = await examine(url)
  expect(by.fields).toMatchObject(found('fault', 'RateLimit or RateLimit-Policy is not valid'))
  expect(by.burst).toMatchObject(found('unknown', 'There is no limit to try'))
})

it.each([
  ['memory', 'maxmemory_policy:noeviction\r\nmaxmemory:100\r\nused_memory:much\r\n'],
  ['memory', 'maxmemory_policy:noeviction\r\nmaxmemory:NaN\r\nused_memory:1\r\n'],
  ['replicas', 'role:master\r\nmaster_repl_offset:7\r\nslave0:state=online,offset=x,lag=0\r\n'],
  ['replicas', 'role:master\r\nmaster_repl_offset:7\r\nslave0:state=online,offset=7,lag=Infinity\r\n'],
])('a store whose INFO has no number about its %s is not measured by it', async (check, info) => {
  const bed = { config: CONFIG, send: async () => [{ result: info }] } as unknown as Bed
  expect(await serverChecks(bed)[check]!()).toMatchObject(found('unknown', 'The store does not report this'))
})

it('a store that has no replicas, or does not say what it has written, is measured', async () => {
  const bed = { config: CONFIG, send: async () => [{ result: 'role:master\r\n' }] } as unknown as Bed
  expect((await serverChecks(bed).replicas!()).measured).toEqual({
    replicas: 0,
    lag_seconds: 0,
    lag_bytes: 0,
  })
})

it('a store that tells a time without numbers has no clock', async () => {
  const bed = { config: CONFIG, send: async () => [{ result: ['1', 'x'] }] } as unknown as Bed
  expect(await serverChecks(bed).clock!()).toMatchObject(found('unknown', 'The store does not tell its time'))
})

it('a store whose answer has no end is not read to it', async () => {
  const url = await serve((_, response) => void sendForEver(response))
  const { by } = await examined(examination =>
    examineStore({ url, token: 't' }, CONFIG, examination, { deadlineMs: 60_000 }),
  )
  expect(by.protocol).toMatchObject(
    found('fault', 'The URL of the store answers a PING with more than 100 kB.'),
  )
})
