/** Rule sets: the number of their scripts, and the counts that two of them share in one Redis. rule-set-size.test.ts has the largest. */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import type { Config, Rule } from '../../src/config/compile.ts'
import { prepareDecide, prepareRefund } from '../../src/limiter/prepared-call.ts'
import { startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { gatewayRuleSet, limitRuleSet } from '../../src/script/compiled.ts'
import type { BoundRule, Subject } from '../../src/script/evaluation.ts'
import { ScriptModel } from '../../src/script/model.ts'
import type { RuleSet } from '../../src/script/rule-set-shape.ts'
import { decideText, refundText } from '../../src/script/rule-set-text.ts'
import { addressStateKey, consumerKey, consumerStateKey } from '../../src/store/keys.ts'
import type { ScriptCall } from '../../src/store/store.ts'
import { upstashStore } from '../../src/store/upstash.ts'
import { bound } from '../support/bound.ts'
import { checked, configPlans, limitRulesOf } from '../support/configs.ts'
import { startCountingProxy } from '../support/counting-proxy.ts'
import { configOf, describeOnRedisEngine, type RedisEngine } from '../support/engines.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { forEvery } from '../support/property.ts'
import { SEED } from '../support/random.ts'
import { type RedisProcess, startRedisProcess } from '../support/redis-process.ts'
import { hasRedisServer } from '../support/servers.ts'
import { NOON } from '../support/traffic.ts'

const TOKEN: Subject = { kind: 'token', consumerKey: consumerKey('acme') }

const RULES: RuleInput[] = [
  { name: 'second', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1s' },
  {
    name: 'day',
    by: 'consumer',
    algorithm: 'fixed-window',
    limit: 100,
    period: 'day',
    plans: { pro: { limit: 200 } },
  },
  { name: 'log', by: 'address', algorithm: 'sliding-log', limit: 10, period: '1h' },
  { name: 'long-log', by: 'address', algorithm: 'sliding-log', limit: 1000, period: '1h' },
  { name: 'guesses', by: 'address', on: 'auth-failure', algorithm: 'fixed-window', limit: 10, period: '1h' },
]
const LIMITS: NonNullable<ConfigInput['limits']> = {
  mails: [
    { name: 'minute', by: ['account'], algorithm: 'leaky-bucket', limit: 60, period: '1m', queue: 10 },
    { name: 'day', algorithm: 'fixed-window', limit: 1000, period: '1d' },
  ],
  calls: [{ name: 'minute', algorithm: 'token-bucket', limit: 60, period: '1m' }],
}

const keyOf = ({ by }: { by: readonly string[] }) =>
  by[0] === 'consumer' ? consumerStateKey('acme') : addressStateKey(`192.0.2.1${by.join()}`)

function subsets<T>(items: readonly T[]): T[][] {
  const [first, ...rest] = items
  return first === undefined ? [[]] : subsets(rest).flatMap(subset => [subset, [first, ...subset]])
}

/** All kinds of calls for these rules: every subset of the rules, every subject and every verb. */
function* callsOf(
  ruleSet: RuleSet,
  rules: readonly (Rule & { by: readonly string[] })[],
  subjects: readonly (Subject | undefined)[],
) {
  for (const subset of subsets(rules).filter(({ length }) => length > 0)) {
    for (const cost of [0, 1, 3]) {
      const bounds = subset.map(rule => bound(rule, keyOf(rule), cost, NOON / 1e3))
      for (const mode of ['enforce', 'shadow'] as const) {
        const rules = bounds.map((each): BoundRule => ({ ...each, mode }))
        for (const subject of subjects) {
          const applicable = subject ? rules : rules.filter(({ rule }) => !rule.match.plans)
          if (!subject && applicable.length === 0) continue
          for (const verb of ['decide', 'peek'] as const) {
            const evaluation = { ruleSet, rules: applicable, ...(subject && { subject }), now: NOON }
            yield prepareDecide(evaluation, verb).call as ScriptCall
          }
        }
        const refunded = rules.map(each => ({ ...each, units: cost, spent: cost }))
        yield prepareRefund({ ruleSet, rules: refunded, spentAt: NOON, plan: '', now: NOON })
          .call as ScriptCall
      }
    }
  }
}

describe('the scripts of a config', () => {
  const config = configOf({ plans: ['free', 'pro'], rules: RULES, limits: LIMITS })
  const subjects: (Subject | undefined)[] = [
    undefined,
    TOKEN,
    { ...TOKEN, plan: 'pro' },
    { kind: 'failed' },
    { kind: 'key', consumerKey: 'R', credentialKey: 'K' },
    { kind: 'pointer', consumerKey: 'R', credentialKey: 'K', pointerKey: 'P' },
  ]

  it('are two for the gateway and two for each limit by name, whatever the requests', () => {
    const shas = (calls: Iterable<ScriptCall>) => new Set([...calls].map(({ script }) => script.plain.sha1))
    const ofGateway = shas(callsOf(gatewayRuleSet(config), config.rules, subjects))
    expect(ofGateway.size).toBe(2)
    const all = [...config.limits.values()].map(rules =>
      shas(callsOf(limitRuleSet(rules), rules, [undefined])),
    )
    expect(all.map(({ size }) => size)).toEqual([2, 2])
    expect(new Set([ofGateway, ...all].flatMap(found => [...found])).size).toBe(6)
  })

  it('are created once, and are the same for equal configs', () => {
    const twin = configOf({
      plans: ['free', 'pro'],
      rules: structuredClone(RULES),
      limits: structuredClone(LIMITS),
    })
    const ruleSet = gatewayRuleSet(config)
    expect(gatewayRuleSet(config)).toBe(ruleSet)
    expect(ruleSet.decide).toBe(ruleSet.decide)
    expect(gatewayRuleSet(twin)).not.toBe(ruleSet)
    expect(gatewayRuleSet(twin).decide.plain).toEqual(ruleSet.decide.plain)
    expect(gatewayRuleSet(twin).refund.keyLocking).toEqual(ruleSet.refund.keyLocking)
  })

  it('reject a rule of another config', () => {
    const [other] = configOf({ rules: [{ ...RULES[0]!, limit: 11 }] }).rules
    expect(() => prepareDecide({ ruleSet: gatewayRuleSet(config), rules: [bound(other!, 'C')] })).toThrow(
      'The rule second is not in this rule set.',
    )
  })
})

describe('the scripts of windows', () => {
  const windows = { by: 'consumer', algorithm: 'fixed-window', limit: 10, period: '1h' } as const
  const scriptsOf = (...rules: object[]) => {
    const named = rules.map((rule, i) => ({ ...windows, ...rule, name: `r-${i}` }) as RuleInput)
    const ruleSet = gatewayRuleSet(configOf({ rules: named }))
    return [1, undefined].flatMap(from => [decideText(ruleSet, from), refundText(ruleSet, from)])
  }
  const [first, clock] = [{ start: 'first-request' }, {}]

  it.each([
    { rules: [clock], hasFirst: false, hasClock: true },
    { rules: [{ start: 'clock' }], hasFirst: false, hasClock: true },
    { rules: [first], hasFirst: true, hasClock: false },
    { rules: [first, clock], hasFirst: true, hasClock: true },
  ])('have only the code that the starts of the windows need: $rules', ({ rules, hasFirst, hasClock }) => {
    for (const text of scriptsOf(...rules)) {
      expect([text.includes('now - now % 1000 + '), text.includes('next_end')]).toEqual([hasFirst, hasClock])
    }
  })
})

describeOnRedisEngine('the scripts of a config', (fresh, kind) => {
  const title = `are the only ones in the script cache of Redis${kind === 'embedded' ? ' (the embedded one does not count its scripts)' : ''}`
  it(title, { skip: kind === 'embedded' }, async () => {
    const redis = await fresh()
    await redis.send(['SCRIPT', 'FLUSH'])
    const config = configOf({ plans: ['free', 'pro'], rules: RULES, limits: LIMITS })
    const calls = [
      ...callsOf(gatewayRuleSet(config), config.rules, [undefined, TOKEN]),
      ...[...config.limits.values()].flatMap(rules => [...callsOf(limitRuleSet(rules), rules, [undefined])]),
    ]
    // One after the other. A thousand concurrent calls would each send the source of the script.
    for (const call of calls) await redis.run(call)
    const memory = String(await redis.send(['INFO', 'memory']))
    expect(/number_of_cached_scripts:(\d+)/.exec(memory)?.[1]).toBe('6')
  })

  it(`compile in two builds that differ in their first lines, whatever the config (SEED=${SEED})`, async () => {
    const redis = await fresh()
    await forEvery(configPlans, kind === 'embedded' ? 3 : 10, async plan => {
      const { config } = checked(plan) ?? {}
      if (!config) return
      for (const ruleSet of [gatewayRuleSet(config), limitRuleSet(limitRulesOf(config))]) {
        for (const { plain, keyLocking } of [ruleSet.decide, ruleSet.refund]) {
          const [first, ...lines] = keyLocking.source.split('\n')
          expect([first, plain.source]).toEqual(['#!lua flags=allow-key-locking', ['', ...lines].join('\n')])
          expect(plain.source).not.toMatch(
            /floor_div|ceil_div|ceil_to_ms|life_until|spread|--@|undefined|NaN|\[object/,
          )
          expect(String(await redis.send(['SCRIPT', 'LOAD', plain.source]))).toBe(plain.sha1)
        }
      }
    })
    await redis.send(['SCRIPT', 'FLUSH'])
  })
})

describeOnRedisEngine('two configs in use at the same time', fresh => {
  /** Decides in turn under the configs, each with its own rule set. */
  async function remainingBy(redis: RedisEngine, configs: readonly Config[], turns: number) {
    const model = new ScriptModel()
    const remaining: Record<string, number>[] = []
    for (let i = 0; i < turns; i++) {
      const config = configs[i % configs.length]!
      const rules = config.rules.map(rule => bound(rule, keyOf(rule), 1, NOON / 1e3))
      const evaluation = { ruleSet: gatewayRuleSet(config), rules, subject: TOKEN, now: NOON }
      const outcome = await redis.ask(prepareDecide(evaluation))
      expect(outcome).toEqual(model.decide(evaluation))
      remaining.push(
        Object.fromEntries(outcome.verdicts.map(({ rule, remaining }) => [rule.name, remaining])),
      )
    }
    return remaining
  }

  it('share the counts of rules that have the same tag in both, and no others', async () => {
    const hour = { by: 'consumer', period: '1h' } as const
    const before = configOf({
      rules: [
        { ...hour, name: 'same', algorithm: 'gcra', limit: 10 },
        { ...hour, name: 'window', algorithm: 'fixed-window', limit: 10 },
        { ...hour, name: 'bucket', algorithm: 'token-bucket', limit: 10 },
        { ...hour, name: 'log', algorithm: 'sliding-log', limit: 10 },
        { ...hour, name: 'gone', algorithm: 'fixed-window', limit: 10 },
      ],
    })
    const after = configOf({
      rules: [
        { ...hour, name: 'new', algorithm: 'sliding-window', limit: 10 },
        // A short log becomes a long one, under the same key.
        { ...hour, name: 'log', algorithm: 'sliding-log', limit: 200 },
        { ...hour, name: 'bucket', algorithm: 'token-bucket', limit: 20 },
        { ...hour, name: 'window', algorithm: 'fixed-window', limit: 5 },
        { ...hour, name: 'same', algorithm: 'gcra', limit: 10 },
      ],
    })
    expect(await remainingBy(await fresh(), [before, after], 5)).toEqual([
      { same: 9, window: 9, bucket: 9, log: 9, gone: 9 },
      { same: 8, window: 3, bucket: 19, log: 198, new: 9 },
      { same: 7, window: 7, bucket: 8, log: 7, gone: 8 },
      { same: 6, window: 1, bucket: 18, log: 196, new: 8 },
      { same: 5, window: 5, bucket: 7, log: 5, gone: 7 },
    ])
  })
})

const missing = hasRedisServer
  ? 'a ruleSet that Redis does not have'
  : 'a ruleSet that Redis does not have (no real Redis is installed to restart)'

describe.skipIf(!hasRedisServer)(missing, () => {
  let redis: RedisProcess
  let bridge: Awaited<ReturnType<typeof startBridge>>
  let proxy: Awaited<ReturnType<typeof startCountingProxy>>
  beforeAll(async () => {
    redis = await startRedisProcess()
    const redisUrl = `redis://${redis.host}:${redis.port}`
    bridge = await startBridge({ redisUrl, token: 't', port: 0, deadlineMs: PATIENT_MS })
    proxy = await startCountingProxy(bridge.url)
  })
  afterAll(async () => {
    await proxy?.close()
    await bridge?.close()
    await redis?.close()
  })

  const config = configOf({ rules: RULES.map(({ plans: _, ...rule }) => rule as RuleInput) })
  const ruleSet = gatewayRuleSet(config)
  const rules = config.rules.map(rule => bound(rule, keyOf(rule)))
  const store = () => upstashStore({ url: proxy.url, token: 't', deadlineMs: PATIENT_MS, keyLocking: true })

  /** The number of HTTP requests of a decision, and of a refund. */
  async function requestsOf(calls: number): Promise<number[][]> {
    const counts: number[][] = []
    for (let i = 0; i < calls; i++) {
      proxy.count()
      const decide = prepareDecide({ ruleSet, rules, subject: TOKEN })
      const [reply] = await store().run([decide.call])
      const { at } = decide.decode(reply)
      const decisions = proxy.count()
      const refunded = rules.slice(0, 2).map(each => ({ ...each, units: 1, spent: 1 }))
      const refund = prepareRefund({ ruleSet, rules: refunded, spentAt: at })
      refund.decode((await store().run([refund.call]))[0])
      counts.push([decisions, proxy.count()])
    }
    return counts
  }

  it('is sent once, and once more after SCRIPT FLUSH and after a restart', async () => {
    const once = [
      [2, 2],
      [1, 1],
      [1, 1],
    ]
    expect(await requestsOf(3)).toEqual(once)
    await redis.send('SCRIPT', 'FLUSH')
    expect(await requestsOf(3)).toEqual(once)
    await redis.kill()
    await redis.start()
    await vi.waitUntil(
      () =>
        store()
          .ping()
          .then(
            () => true,
            () => false,
          ),
      { timeout: PATIENT_MS },
    )
    expect(await requestsOf(3)).toEqual(once)
    // Several calls are repeated in one HTTP request.
    await redis.send('SCRIPT', 'FLUSH')
    const both = [
      prepareDecide({ ruleSet, rules, subject: TOKEN }),
      prepareDecide({ ruleSet, rules: rules.slice(2) }),
    ]
    proxy.count()
    const replies = await store().run(both.map(({ call }) => call))
    expect(both.map(({ decode }, i) => decode(replies[i]).status)).toEqual(['admitted', 'admitted'])
    expect(proxy.count()).toBe(2)
  })
})
