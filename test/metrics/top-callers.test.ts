/** The callers that rules have refused most: the sketch of an isolate, and the record of an hour on every Redis. */
import { describe, expect, it } from 'vitest'
import { type ErrorCode, GatewayError } from '../../src/errors.ts'
import { addCountsAndCallersScript, type Tally } from '../../src/metrics/add-callers.ts'
import { callFor } from '../../src/metrics/add-counts.ts'
import { createStatsRecorder } from '../../src/metrics/flush.ts'
import type { Counted } from '../../src/metrics/observation.ts'
import { parseCallers } from '../../src/metrics/recorded-callers.ts'
import { createTopCallers, type RefusedCaller } from '../../src/metrics/top-callers.ts'
import { sha1 } from '../../src/sha1.ts'
import { statsKey } from '../../src/store/keys.ts'
import type { Store } from '../../src/store/store.ts'
import { sized } from '../selection.ts'
import { describeOnRedisEngine, type RedisEngine } from '../support/engines.ts'

const AT = new Date('2026-11-21T08:58:10Z')
const RECORD = 'sluice:{stats}:callers:2026112108'

const refusal = (rule = 'minute', mode: 'enforce' | 'shadow' = 'enforce'): Counted => ({
  outcome: 'limited',
  verdicts: [{ rule: { name: rule }, mode, allowed: false }],
})

/** What an isolate would send: by what is counted, the counts by caller. */
function sent(isolate: ReturnType<typeof createTopCallers>): Record<string, Record<string, Tally>> {
  const { call } = isolate.addTo(callFor([], AT), AT)
  const args = call.args.slice(3, -1)
  return Object.fromEntries(
    args.flatMap((counted, i) => {
      if (i % 2 === 1) return []
      const words = (args[i + 1] ?? '').split(' ')
      const tallies = words.flatMap((name, j) =>
        j % 3 === 0 ? [[name, { count: Number(words[j + 1]), error: Number(words[j + 2]) }] as const] : [],
      )
      return [[counted, Object.fromEntries(tallies)]]
    }),
  )
}

describe('the refused callers of an isolate', () => {
  it('are counted for each rule that has refused, or would have as a shadow', () => {
    const isolate = createTopCallers('consumers')
    const both: Counted = {
      outcome: 'limited',
      verdicts: [
        { rule: { name: 'minute' }, mode: 'enforce', allowed: false },
        { rule: { name: 'day' }, mode: 'shadow', allowed: false },
        { rule: { name: 'burst' }, mode: 'enforce', allowed: true },
      ],
    }
    isolate.record(both, { consumer: 'acme' })
    isolate.record(refusal(), { consumer: 'acme' })
    isolate.record({ ...refusal(), limit: 'mail' }, { identity: { account: 42, kind: 'a b' } })
    expect(sent(isolate)).toEqual({
      'limited minute': { acme: { count: 2, error: 0 } },
      'shadow_limited day': { acme: { count: 1, error: 0 } },
      'limited mail/minute': { 'account=42,kind=a%20b': { count: 1, error: 0 } },
    })
    expect(sent(isolate)).toEqual({})
  })

  it.each<[RefusedCaller, consumers: string, networks: string]>([
    [{ consumer: 'acme', address: '192.0.2.7' }, 'acme', 'acme'],
    [{ consumer: 'acme', mode: 'live' }, 'acme', 'acme'],
    [{ consumer: 'acme', mode: 'test' }, 'acme:test', 'acme:test'],
    [{ mode: 'test', address: '192.0.2.7' }, '-', '192.0.2.0/24'],
    [{ address: '192.0.2.7' }, '-', '192.0.2.0/24'],
    [{ address: '2001:db8:1:2::3' }, '-', '2001:db8:1::/48'],
    [{}, '-', '-'],
    [{ identity: {} }, '-', '-'],
    [{ identity: { account: 7, ip: '192.0.2.7' } }, 'account=7', 'account=7,ip=192.0.2.0/24'],
    [{ identity: { ip: '::ffff:192.0.2.7' } }, '-', 'ip=192.0.2.0/24'],
  ])('%j is kept as %s, or with networks as %s', (caller, consumers, networks) => {
    for (const [kept, name] of [
      ['consumers', consumers],
      ['networks', networks],
    ] as const) {
      const isolate = createTopCallers(kept)
      isolate.record(refusal(), caller)
      expect(Object.keys(sent(isolate)['limited minute']!)).toEqual([name])
    }
  })

  it('are the most frequent ones of many, each within its error, in 32 counters', () => {
    const isolate = createTopCallers('consumers')
    const hot = new Map([
      ['hot-1', 0],
      ['hot-2', 0],
    ])
    let n = 0
    const one = refusal()
    const record = (consumer: string) => {
      n += 1
      isolate.record(one, { consumer })
    }
    for (let i = 0; i < sized(1e6, 1e5); i++) {
      record(`consumer-${i}`)
      if (i % 10 === 0)
        for (const name of i % 20 === 0 ? hot.keys() : ['hot-1']) {
          hot.set(name, hot.get(name)! + 1)
          record(name)
        }
    }
    const tallies = sent(isolate)['limited minute']!
    expect(Object.keys(tallies)).toHaveLength(32)
    expect(Object.values(tallies).reduce((sum, { count }) => sum + count, 0)).toBe(n)
    for (const [name, count] of hot) {
      expect(tallies[name]!.count).toBeGreaterThanOrEqual(count)
      expect(tallies[name]!.count - tallies[name]!.error).toBeLessThanOrEqual(count)
    }
    for (const { error } of Object.values(tallies)) expect(error).toBeLessThanOrEqual(n / 32)
  })

  it('of more than ten rules travel with several flushes', () => {
    const isolate = createTopCallers('consumers')
    for (let i = 0; i < 25; i++) isolate.record(refusal(`rule-${i}`), { consumer: 'acme' })
    const sizes = [1, 2, 3, 4].map(() => Object.keys(sent(isolate)).length)
    expect(sizes).toEqual([10, 10, 5, 0])
  })

  it('are counted again if they have not arrived', () => {
    const isolate = createTopCallers('consumers')
    isolate.record(refusal(), { consumer: 'acme' })
    isolate.addTo(callFor([], AT), AT).putBack()
    isolate.record(refusal(), { consumer: 'acme' })
    expect(sent(isolate)).toEqual({ 'limited minute': { acme: { count: 2, error: 0 } } })
  })
})

describe('a flush', () => {
  /** An isolate whose store fails once. @returns how often the refusal of acme was sent, in calls that the store did not refuse */
  async function sentAfter(fault: ErrorCode): Promise<number> {
    const wakers: (() => void)[] = []
    const timer = (_: number, wake: () => void) => {
      wakers.push(wake)
      return () => {}
    }
    let time = AT.getTime()
    let faults: ErrorCode[] = [fault]
    const arrived: string[] = []
    const store: Store = {
      async run([call]) {
        const [code] = faults
        faults = []
        if (code) throw new GatewayError(code, 'for the test')
        if ('args' in call!) arrived.push(...call.args)
        return [1]
      },
      ping: async () => {},
    }
    const timing = { everyMs: 10_000, timer, now: () => time }
    const stats = createStatsRecorder(store, { ...timing, topCallers: createTopCallers('consumers') })
    stats.count(refusal(), false, () => {}, { consumer: 'acme' })
    for (let i = 0; i < 4; i++) {
      time += 10_000
      for (const wake of wakers.splice(0)) wake()
      await new Promise(resolve => setImmediate(resolve))
      stats.count({ outcome: 'allowed', verdicts: [] }, false, () => {})
    }
    return arrived.filter(text => text === 'acme 1 0').length
  }

  it.each<[ErrorCode, number]>([
    ['ERR_STORE_REFUSED', 1],
    ['ERR_STORE_TIMEOUT', 0],
  ])(
    'that fails with %s sends the callers again only if they have certainly not arrived',
    async (code, times) => {
      expect(await sentAfter(code)).toBe(times)
    },
  )
})

it('the digests of the script are those of its text', () => {
  const { keyLocking, plain } = addCountsAndCallersScript()
  expect([keyLocking.sha1, plain.sha1]).toEqual([sha1(keyLocking.source), sha1(plain.source)])
})

describeOnRedisEngine('the record of refused callers', fresh => {
  /** An isolate sends refusals of consumers by the rule `minute`. */
  async function send(redis: RedisEngine, counts: Record<string, number>, at = AT, rule?: string) {
    const isolate = createTopCallers('consumers')
    for (const [consumer, count] of Object.entries(counts))
      for (let i = 0; i < count; i++) isolate.record(refusal(rule), { consumer })
    return await redis.run(isolate.addTo(callFor([['lost', 1]], at), at).call)
  }
  const minute = (m: number) => new Date(AT.getTime() + (m - 58) * 60e3)
  const field = async (redis: RedisEngine, name = 'limited minute') =>
    String(await redis.send(['HGET', RECORD, name]))

  it('adds up what isolates send, by the minute, with the counters, and expires', async () => {
    const redis = await fresh()
    await send(redis, { acme: 3, beta: 1 }, minute(50))
    await send(redis, { acme: 2 }, minute(50))
    await send(redis, { acme: 4 }, minute(52))
    // The clock of this isolate is behind.
    await send(redis, { acme: 1 }, minute(51))
    expect(await field(redis)).toBe('acme 10 0 50 50:5,52:5 beta 1 0 50 50:1')
    expect(await field(redis, '#')).toBe('1')
    const record = String(await redis.send(['HGETALL', statsKey(AT)]))
    expect(record).toBe('#,1,lost,4,h lost,8:4,m lost,530:2,532:2')
    expect(Number(await redis.send(['TTL', RECORD]))).toBeGreaterThan(8 * 86400 - 60)
  })

  it('has the last six minutes, and the minute after a pause of more than five', async () => {
    const redis = await fresh()
    for (const m of [1, 2, 8, 9, 10, 11, 12, 13, 18]) await send(redis, { acme: m }, minute(m))
    expect(await field(redis)).toBe('acme 84 0 8 9:9,10:10,11:11,12:12,13:13,18:18')
  })

  it('keeps 20 callers of a rule, the sum of all refusals, and callers with enough of them', async () => {
    const redis = await fresh()
    for (let i = 0; i < 40; i++) {
      const others = Object.fromEntries(Array.from({ length: 30 }, (_, j) => [`c-${i}-${j}`, 1]))
      await send(redis, { ...others, acme: 5 })
    }
    const callers = parseCallers(await field(redis))
    expect(callers).toHaveLength(20)
    expect(callers.reduce((sum, { count }) => sum + count, 0)).toBe(40 * 35)
    const acme = callers.find(({ name }) => name === 'acme')!
    expect(acme.count).toBeGreaterThanOrEqual(200)
    expect(acme.count - acme.error).toBeLessThanOrEqual(200)
    expect(acme.count - acme.error).toBeGreaterThan(150)
  })

  it('takes two commands more than the counters alone, however much is sent', async () => {
    const redis = await fresh()
    if (redis.kind === 'embedded') return
    const commands = async () => {
      const info = String(await redis.send(['INFO', 'commandstats']))
      const counts = [...info.matchAll(/^cmdstat_(hmget|hset|expire):calls=(\d+)/gm)]
      return Object.fromEntries(counts.map(([, name, calls]) => [name!, Number(calls)]))
    }
    const crowd = Object.fromEntries(Array.from({ length: 32 }, (_, i) => [`c-${i}`, 1]))
    for (let i = 0; i < 2; i++) await send(redis, crowd)
    const before = await commands()
    await redis.run(callFor([['lost', 1]], AT))
    const alone = await commands()
    await send(redis, crowd)
    const all = await commands()
    expect([alone.hmget! - before.hmget!, alone.hset! - before.hset!]).toEqual([1, 1])
    expect([all.hmget! - alone.hmget!, all.hset! - alone.hset!]).toEqual([2, 2])
    expect(all.expire).toBe(before.expire)
  })

  it('counts no more than 500 rules, whatever is sent', async () => {
    const redis = await fresh()
    for (let i = 0; i < 510; i++) await send(redis, { acme: 1 }, AT, `rule-${i}`)
    await send(redis, { acme: 1 }, AT, 'rule-0')
    expect(await redis.send(['HLEN', RECORD])).toBe(501)
    expect(await field(redis, 'limited rule-0')).toContain('acme 2 0')
  })
})
