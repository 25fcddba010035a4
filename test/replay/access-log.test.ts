/** Real traffic through the engine, with the timestamps of the log as the clock, and through the running gateway. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Stack } from '../../src/node/start/stack.ts'
import { ScriptModel } from '../../src/script/model.ts'
import { addressIdentity } from '../../src/set-ups/http/address.ts'
import { addressStateKey } from '../../src/store/keys.ts'
import type { RedisKind } from '../selection.ts'
import { readAccessLog } from '../support/access-log.ts'
import { bound } from '../support/bound.ts'
import e2eConfig from '../support/e2e.config.ts'
import { configOf, describeOnRedisEngine, modelled, rulesOf } from '../support/engines.ts'
import { hasRedisServer } from '../support/servers.ts'
import { startTestStack } from '../support/stack.ts'
import { evaluationOf } from '../support/traffic.ts'

const { title, requests } = readAccessLog()

const RULES = rulesOf(
  { name: 'second', by: 'address', algorithm: 'gcra', limit: 2, period: '1s', burst: 6 },
  { name: 'minute', by: 'address', algorithm: 'fixed-window', limit: 12, period: '1m' },
  { name: 'hour', by: 'address', algorithm: 'gcra', limit: 8, period: '1h', burst: 15 },
)

const countedAt = (address: string) =>
  RULES.map(rule => bound(rule, addressStateKey(addressIdentity(address))))

/** Only one Redis decides all requests: a real one if it is installed, because the embedded one needs a millisecond for each. */
const PARTS = {
  embedded: hasRedisServer ? 1000 : Infinity,
  'valkey-server': hasRedisServer ? 3000 : Infinity,
}

const partOf = (kind: RedisKind) => (kind === 'redis-server' ? requests : requests.slice(0, PARTS[kind]))

describeOnRedisEngine(`requests of ${title}`, (fresh, kind) => {
  it('are decided one by one as the model predicts', async context => {
    const redis = await fresh()
    const model = new ScriptModel()
    const counts = { admitted: 0, refused: 0 }
    const refusedBy: Record<string, number> = { second: 0, minute: 0, hour: 0 }
    const refusedAddresses = new Set<string>()
    const replayed = partOf(kind)
    for (const [i, { address, at }] of replayed.entries()) {
      const evaluation = evaluationOf(countedAt(address), at)
      const expected = model.decide(modelled(evaluation))
      expect(await redis.evaluate(evaluation), `request ${i}`).toEqual(expected)
      if (expected.status !== 'admitted' && expected.status !== 'refused')
        throw new Error('a request without a credential cannot be blocked or unknown')
      counts[expected.status] += 1
      if (expected.status === 'refused') refusedAddresses.add(address)
      for (const { rule, allowed } of expected.verdicts) if (!allowed) refusedBy[rule.name]! += 1
    }
    const addresses = new Set(replayed.map(({ address }) => address)).size
    console.log(
      `${replayed.length} ${context.task.suite?.name}: ${addresses} addresses, ${counts.admitted} admitted, ${counts.refused} refused ` +
        `of ${refusedAddresses.size} addresses (second ${refusedBy.second}, minute ${refusedBy.minute}, hour ${refusedBy.hour})`,
    )
    expect(counts.admitted + counts.refused).toBe(replayed.length)
    if (replayed === requests && title === 'a real log') {
      expect({ ...counts, ...refusedBy, addresses }).toEqual(REAL_SUMMARY)
    } else {
      expect(counts.refused).toBeGreaterThan(100)
    }
  })
})

/** A brute-force count with exact fractions had the same result. These numbers change only if an algorithm changes. */
const REAL_SUMMARY = { admitted: 8246, refused: 1754, second: 302, minute: 1173, hour: 331, addresses: 1753 }

/** Addresses that send requests at the same time. */
const AT_ONCE = 16

describe(`600 requests of ${title}, through the running gateway`, () => {
  let stack: Stack
  beforeAll(async () => {
    stack = await startTestStack('e2e.config.ts')
  })
  afterAll(() => stack?.close())

  it('are answered as the model predicts', async () => {
    // The periods are months, so admission depends only on the order of the requests of an address, not on their speed.
    const [rule] = configOf(e2eConfig).rules.filter(({ name }) => name === 'log')
    const model = new ScriptModel()
    const byAddress = Map.groupBy(requests.slice(0, 600), ({ address }) => address)
    const waiting = [...byAddress]
    const outcomes: { address: string; statuses: number[]; expected: number[] }[] = []
    // Some addresses at once. All of them at once would be a flood, in which a busy machine exceeds the deadlines.
    const client = async () => {
      for (let next = waiting.shift(); next; next = waiting.shift()) {
        const [address, logged] = next
        const statuses: number[] = []
        const expected: number[] = []
        for (const { path } of logged) {
          const url = `${stack.url}/log${path.startsWith('/') ? path : '/'}`
          const response = await fetch(url, { headers: { 'cf-connecting-ip': address } })
          await response.body?.cancel()
          expect(response.headers.get('sluice-degraded'), 'a decision without the store').toBe(null)
          statuses.push(response.status)
          const counted = [bound(rule!, addressStateKey(addressIdentity(address)))]
          const { status } = model.decide(modelled(evaluationOf(counted, Date.now() * 1e3)))
          expected.push(status === 'admitted' ? 200 : 429)
        }
        outcomes.push({ address, statuses, expected })
      }
    }
    await Promise.all(Array.from({ length: AT_ONCE }, client))
    for (const { address, statuses, expected } of outcomes) expect(statuses, address).toEqual(expected)
    const all = outcomes.flatMap(({ statuses }) => statuses)
    expect(all).toHaveLength(600)
    expect(all.filter(status => status === 429).length).toBeGreaterThan(50)
  })
})
