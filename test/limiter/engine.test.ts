/**
 * The engine by itself, with a store and a clock that are passed in. Switches, failures of the store and exceptions in limiting code
 * happen during decisions; `finish` counts once; probes and hand-overs run beside decisions. The set-ups have their own suites.
 */

import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { SYSTEM_TIMER } from '../../src/clock.ts'
import type { Rule } from '../../src/config/compile-rule.ts'
import type { RememberedCaller } from '../../src/credentials/caller-memory.ts'
import { GatewayError } from '../../src/errors.ts'
import { createAnswers } from '../../src/limiter/answers/answers.ts'
import { createKnownAnswers } from '../../src/limiter/answers/known.ts'
import { createRefusalMemory } from '../../src/limiter/answers/refusals.ts'
import type { DemandedRule } from '../../src/limiter/bind.ts'
import { bindRule } from '../../src/limiter/bind.ts'
import { evaluateOnCluster } from '../../src/limiter/cluster.ts'
import type { Decision } from '../../src/limiter/decision.ts'
import { createEngine } from '../../src/limiter/engine.ts'
import type { DecideOptions, Ending, Engine, EngineOptions } from '../../src/limiter/engine-shape.ts'
import { createGuesses } from '../../src/limiter/guesses.ts'
import { createLocalLimiter } from '../../src/limiter/outage/local.ts'
import { prepareRefund, prepareReset } from '../../src/limiter/prepared-call.ts'
import { createProbe } from '../../src/limiter/probe.ts'
import { createHoldingsKeeper } from '../../src/limiter/units/keep-holdings.ts'
import { compileScripts } from '../../src/script/scripts.ts'
import { syncScript } from '../../src/script/sync-text.ts'
import type { Store, StoreCall } from '../../src/store/store.ts'
import { createSwitchBoard } from '../../src/switches/live.ts'
import { formatSwitches, type RuleSwitch } from '../../src/switches/switches.ts'
import { RedisEngine, rulesOf } from '../support/engines.ts'
import { UNBOUNDED_LOG } from '../support/log.ts'
import { startRedis, type TestRedis } from '../support/redis.ts'
import { ruleSetOf } from '../support/rule-set.ts'
import { storeOf } from '../support/stores.ts'
import { NOON } from '../support/traffic.ts'
import { riderNamed } from '../support/trips.ts'

const window = { by: 'consumer', algorithm: 'fixed-window', period: '1h' } as const
const [two, many, closed, local, open] = rulesOf(
  { name: 'two', ...window, limit: 2 },
  { name: 'many', ...window, limit: 9 },
  { name: 'closed', ...window, limit: 2, onStoreFailure: 'closed' },
  { name: 'local', ...window, limit: 2, onStoreFailure: 'local' },
  { name: 'open', ...window, limit: 2, onStoreFailure: 'open' },
) as [Rule, Rule, Rule, Rule, Rule]

const KEY = 'sluice:{x:tests}:state'
const SUBJECT = {
  kind: 'key',
  consumerKey: 'sluice:{c:acme}:consumer',
  credentialKey: 'sluice:{c:acme}:key:0',
} as const
const PLANS = ['free']
const SWITCHES = 'sluice:{switches}'
const UNREACHABLE = new GatewayError('ERR_STORE_UNREACHABLE', 'The store could not be reached.')

let redis: TestRedis
beforeAll(async () => {
  redis = await startRedis()
})
afterAll(() => redis?.close())

let nowMs: number
let tasks: Promise<unknown>[]
let calls: StoreCall[][]
/** Runs before each call to the store, and can fail. */
let fault: (() => unknown) | undefined
let finished: [Decision['kind'], Ending][]
let engine: Engine

beforeEach(async () => {
  await redis.connection.send(['FLUSHALL'])
  nowMs = NOON / 1e3
  tasks = []
  calls = []
  fault = undefined
  finished = []
  engine = engineWith()
})

function engineWith(
  options: Partial<EngineOptions> = {},
  config: Partial<Parameters<typeof createEngine>[0]> = {},
): Engine {
  const clock = { now: () => nowMs }
  const working = storeOf(new RedisEngine(redis.connection))
  const store: Store = {
    ...working,
    async run(each) {
      calls.push([...each])
      await fault?.()
      return await working.run(each)
    },
  }
  return createEngine(config, store, {
    ...{ clock, decideAt: () => nowMs * 1e3, board: createSwitchBoard(clock), log: UNBOUNDED_LOG },
    switchName: ({ name }) => name,
    credentials: 'refuse',
    local: createLocalLimiter(1, clock.now, () => nowMs * 1e3),
    timer: SYSTEM_TIMER,
    probe: createProbe(compileScripts),
    onCluster: evaluateOnCluster,
    onFinish: (decision, ending) => void finished.push([decision.kind, ending]),
    ...options,
  })
}

const options: DecideOptions = { background: task => void tasks.push(task.catch(() => {})) }
const awaiting: DecideOptions = { ...options, awaitsSwitches: true }

const ruleSetWith = (...rules: Rule[]) =>
  ruleSetOf(
    rules.map(rule => ({ rule, key: KEY })),
    { plans: PLANS, hasSubject: true },
  )

const demandOf = (...rules: Rule[]) => ({
  ruleSet: ruleSetWith(...rules),
  rules: rules.map((rule): DemandedRule => ({ rule, key: KEY, cost: rule.cost })),
})
const decide = async (...rules: Rule[]) => (await engine.decide(demandOf(...rules), options)).decision
const kinds = async (times: number, ...rules: Rule[]) => {
  const all: Decision['kind'][] = []
  for (let i = 0; i < times; i++) all.push((await decide(...rules)).kind)
  return all
}
const remaining = async (...rules: Rule[]) => {
  const { decision } = await engine.peek(demandOf(...rules), options)
  return 'verdicts' in decision ? decision.verdicts.map(verdict => verdict.remaining) : []
}
const fail = (error: unknown) => {
  fault = () => {
    throw error
  }
}

const by = { at: new Date(0), by: 'ops' }
const put = async (text: string | undefined) => {
  await redis.connection.send(text === undefined ? ['DEL', SWITCHES] : ['SET', SWITCHES, text])
  nowMs += 1000
}
const kill = () => put(formatSwitches({ kill: by, rules: new Map() }))
const switchRule = (name: string, change: Pick<RuleSwitch, 'mode'>) =>
  put(formatSwitches({ rules: new Map([[name, { ...by, ...change }]]) }))

describe('a trip', () => {
  it('carries switches, settlements and hand-overs before its decisions, and units, returns, guesses and signals after them', async () => {
    const first = (name: string) => riderNamed(name, { isFirst: true })
    const board = { ...createSwitchBoard({ now: () => nowMs }), load: first('switches').load }
    const time = { now: () => nowMs, timer: SYSTEM_TIMER }
    const known = createKnownAnswers(time.now, board.current)
    engine = engineWith({
      board,
      local: { ...createLocalLimiter(1, time.now), handOvers: first('hand-overs') },
      keeper: {
        ...createHoldingsKeeper({ ...time, log: UNBOUNDED_LOG, script: syncScript }),
        firstRider: first('settlements'),
        rider: riderNamed('units'),
      },
      answers: {
        ...createAnswers(known, createRefusalMemory(known, 1), undefined),
        returns: riderNamed('returns'),
      },
      guesses: {
        ...createGuesses(known, undefined, { clock: time, switchName: rule => rule.name }),
        rider: riderNamed('guesses'),
      },
      signals: [riderNamed('signal 1'), riderNamed('signal 2')],
    })
    await engine.peek(demandOf(two), options)
    const names = calls[0]!.map(each => ('key' in each ? each.key : 'DECISION'))
    const after = ['units', 'returns', 'guesses', 'signal 1', 'signal 2']
    expect(names).toEqual(['switches', 'settlements', 'hand-overs', 'DECISION', ...after])
  })
})

describe('a switch that changes during a decision', () => {
  it.each([
    ['read in the background', options],
    ['awaited', awaiting],
  ])(
    'a request that was bound under a kill switch is degraded even if the switch is turned off meanwhile: %s',
    async (_, how) => {
      await kill()
      await engine.decide(demandOf(many), how)
      await Promise.all(tasks)
      await put(undefined)
      const lifted = await engine.decide(demandOf(many), how)
      expect(lifted.decision).toMatchObject({
        ...{ kind: 'allowed', isUncounted: true, verdicts: [] },
        degraded: { cause: 'kill-switch' },
      })
      await Promise.all(tasks)
      const after = await engine.decide(demandOf(many), how)
      expect(after.decision).toMatchObject({ kind: 'allowed', verdicts: [{ remaining: 7 }] })
      expect(after.decision).not.toHaveProperty('degraded')
    },
  )

  it('the request is also degraded if the trip for its credential brings the change', async () => {
    await redis.connection.send(['SET', SUBJECT.credentialKey, 'plan=free created=2026-01-01'])
    await kill()
    const demand = { ...demandOf(two), subject: SUBJECT }
    await engine.decide(demand, options)
    await put(undefined)
    calls = []
    expect((await engine.decide(demand, options)).decision).toMatchObject({
      ...{ kind: 'allowed', plan: 'free', isUncounted: true },
      degraded: { cause: 'kill-switch' },
    })
    expect(calls.map(each => each.length)).toEqual([2])
  })

  it('a request is admitted without being counted if the rule that refused it is switched off', async () => {
    expect(await kinds(3, two, many)).toEqual(['allowed', 'allowed', 'denied'])
    await switchRule('two', { mode: 'off' })
    const { decision, outcome } = await engine.decide(demandOf(two, many), options)
    expect(decision).toMatchObject({ kind: 'allowed', verdicts: [{ rule: { name: 'many' }, remaining: 7 }] })
    expect(outcome!.status).toBe('refused')
    expect(await remaining(many)).toEqual([7])
  })
})

describe('switches, without rules to count', () => {
  const isRefresh = (each: readonly StoreCall[]) =>
    each.length === 1 && 'command' in each[0]! && each[0].command === 'GET'
  const refreshes = () => calls.filter(isRefresh).length

  it('are read once a second, in the background', async () => {
    let isRead = false
    fault = async () => {
      await Promise.resolve()
      isRead = true
    }
    await kinds(3)
    expect([refreshes(), isRead, tasks.length]).toEqual([1, true, 1])
    nowMs += 999
    await kinds(3)
    expect(refreshes()).toBe(1)
    nowMs += 1
    await kinds(3)
    expect(refreshes()).toBe(2)
  })

  it('do not delay a request unless its set-up waits for them', async () => {
    let answer = () => {}
    fault = () => new Promise<void>(resolve => (answer = resolve))
    expect(await kinds(1)).toEqual(['allowed'])
    nowMs += 1000
    let isDecided = false
    const decided = engine.decide(demandOf(), awaiting).then(() => (isDecided = true))
    await new Promise(resolve => setImmediate(resolve))
    expect([refreshes(), isDecided]).toEqual([2, false])
    answer()
    await decided
  })

  it('do not affect the decision if they cannot be read', async () => {
    fail(UNREACHABLE)
    expect((await engine.decide(demandOf(), awaiting)).decision).toEqual({
      ...{ kind: 'allowed', verdicts: [], delay: 0 },
    })
  })

  it('delay only one request while they cannot be read', async () => {
    fail(UNREACHABLE)
    await engine.decide(demandOf(), awaiting)
    nowMs += 1000
    let answer = () => {}
    fault = () => new Promise<void>(resolve => (answer = resolve))
    await engine.decide(demandOf(), awaiting)
    expect(refreshes()).toBe(2)
    answer()
    await Promise.all(tasks)
    nowMs += 1000
    let isDecided = false
    const decided = engine.decide(demandOf(), awaiting).then(() => (isDecided = true))
    await new Promise(resolve => setImmediate(resolve))
    expect([refreshes(), isDecided]).toEqual([3, false])
    answer()
    await decided
  })

  it('are not read while the breaker is open', async () => {
    engine = engineWith({}, { breaker: { ...BREAKER, retryAfterMs: 60_000 } })
    fail(UNREACHABLE)
    await kinds(2, open)
    await Promise.all(tasks)
    nowMs += 2000
    calls = []
    await kinds(2)
    expect(calls).toEqual([])
  })

  it('are read even if no demand can be built, so that the kill switch still works', async () => {
    await kill()
    const broken = () =>
      engine.decideBroken(
        { candidates: [closed], ruleSet: ruleSetWith(), error: new TypeError('bug') },
        options,
      ).decision
    expect(broken().kind).toBe('unavailable')
    await Promise.all(tasks)
    expect(broken().kind).toBe('allowed')
  })
})

it('decides even if the lookup of earlier answers throws', async () => {
  fail(UNREACHABLE)
  const recall = () => {
    throw new TypeError('a bug')
  }
  const { decision } = await engine.decide({ ...demandOf(open), subject: SUBJECT }, { ...options, recall })
  expect(decision).toMatchObject({ kind: 'unavailable', degraded: { cause: 'internal' } })
})

describe('finish', () => {
  it('has an effect only at the first call', async () => {
    const decided = await engine.decide(demandOf(two), options)
    expect(finished).toEqual([])
    decided.finish('complete')
    decided.finish('failed')
    expect(finished).toEqual([['allowed', 'complete']])
  })

  it.each<[string, () => void]>([
    ['an exception in limiting code', () => fail(new TypeError('a bug'))],
    ['a failure of the store', () => fail(UNREACHABLE)],
  ])('counts once after %s', async (_, breakIt) => {
    breakIt()
    const decided = await engine.decide(demandOf(open), options)
    decided.finish('failed')
    decided.finish('failed')
    expect(finished).toEqual([['allowed', 'failed']])
  })

  it('has an effect only at the first call, even if its listener throws', async () => {
    let times = 0
    engine = engineWith({
      onFinish() {
        times += 1
        throw new Error('a listener')
      },
    })
    const { finish } = await engine.decide(demandOf(two), options)
    expect(() => finish('complete')).toThrow('a listener')
    finish('complete')
    expect(times).toBe(1)
  })

  it('is also returned with a refusal, a peek, and a demand that could not be built', async () => {
    const denied = await engine.decide(
      { ruleSet: ruleSetWith(two), rules: [{ rule: two, key: KEY, cost: 3 }] },
      options,
    )
    const peeked = await engine.peek(demandOf(two), options)
    const broken = engine.decideBroken(
      { candidates: [], ruleSet: ruleSetWith(), error: new Error() },
      options,
    )
    for (const { finish } of [denied, peeked, broken]) finish('complete')
    expect(finished.map(([kind]) => kind)).toEqual(['denied', 'allowed', 'allowed'])
  })

  it('has to be called at the end of the request only if there is a listener', () => {
    expect(engine.awaitsEndings).toBe(true)
    expect(engineWith({ onFinish: undefined }).awaitsEndings).toBe(false)
  })
})

describe('an exception in limiting code', () => {
  it('is handled by the fallback of each rule, and its message is not passed on', async () => {
    fail(new TypeError(`of ${KEY}`))
    const decisions = [await decide(closed), await decide(local), await decide(open)]
    expect(decisions.map(({ kind }) => kind)).toEqual(['unavailable', 'allowed', 'allowed'])
    for (const decision of decisions) {
      expect(decision).toMatchObject({ degraded: { cause: 'internal' } })
      expect(JSON.stringify(decision)).not.toContain(`of ${KEY}`)
    }
  })

  it('before the trip counts nothing, and closed rules refuse', async () => {
    const broken = engineWith({
      decideAt: () => {
        throw new RangeError('a bug')
      },
    })
    const decided = async (rule: Rule) => (await broken.decide(demandOf(rule), options)).decision
    expect(await decided(closed)).toMatchObject({ kind: 'unavailable', what: 'limits' })
    for (const rule of [local, open]) {
      expect(await decided(rule)).toMatchObject({ kind: 'allowed', isUncounted: true, verdicts: [] })
    }
    expect(calls.flat()).toEqual([{ command: 'GET', key: SWITCHES }])
  })
})

describe('a demand that could not be built', () => {
  const broken = (rules: Rule[], subject?: typeof SUBJECT, seen?: RememberedCaller) =>
    engine.decideBroken(
      {
        candidates: rules,
        ruleSet: ruleSetWith(),
        error: new TypeError('a bug'),
        ...(subject && { subject }),
      },
      { ...options, recall: () => seen },
    ).decision

  it.each([
    ['closed', 'unavailable', closed],
    ['local', 'allowed', local],
    ['open', 'allowed', open],
  ] as const)('with a rule that is %s is %s, and is counted nowhere', (_, kind, rule) => {
    for (let i = 0; i < 3; i++) expect(broken([rule]).kind).toBe(kind)
    expect(broken([rule])).toMatchObject({
      degraded: { cause: 'internal' },
      ...(kind === 'allowed' && { isUncounted: true, verdicts: [] }),
    })
  })

  it('is not refused by a closed rule that is a shadow, or is switched to shadow', async () => {
    expect(broken([{ ...closed, mode: 'shadow' }]).kind).toBe('allowed')
    await switchRule('closed', { mode: 'shadow' })
    await engine.decide(demandOf(many), options)
    expect(broken([closed]).kind).toBe('allowed')
  })

  it('uses the earlier answers about the credential', () => {
    expect(broken([open], SUBJECT)).toMatchObject({ kind: 'unavailable', what: 'credential' })
    expect(broken([open], SUBJECT, { isBlocked: true })).toEqual({ kind: 'blocked' })
    engine = engineWith({ credentials: 'recent' })
    expect(broken([open], SUBJECT)).toMatchObject({ kind: 'unavailable', what: 'credential' })
    expect(broken([open], SUBJECT, { plan: 'free' })).toMatchObject({ kind: 'allowed', plan: 'free' })
    engine = engineWith({ credentials: 'unchecked' })
    expect(broken([open], SUBJECT)).toMatchObject({ kind: 'allowed', isUncounted: true })
  })
})

/** The breaker opens on the second failure. */
const BREAKER = { failures: 2, slowCalls: 9, slowAfterMs: 1000, retryAfterMs: 1000 }

describe('beside a decision', () => {
  const settle = async () => {
    await Promise.all(tasks.splice(0))
  }
  const isProbe = (each: readonly StoreCall[]) =>
    each.some(call => 'keys' in call && call.keys.some(key => key.includes('probe-')))
  const probes = () => calls.filter(isProbe).length

  it('the store is probed only when a probe is due', async () => {
    engine = engineWith({}, { breaker: BREAKER })
    await kinds(1, open)
    expect(probes()).toBe(0)
    fail(UNREACHABLE)
    // The second failure opens the breaker, and the first probe is due at once.
    expect(await kinds(2, open)).toEqual(['allowed', 'allowed'])
    expect(probes()).toBe(1)
    await settle()
    await kinds(3, open)
    expect(probes()).toBe(1)
    nowMs += 1000
    await kinds(3, open)
    expect(probes()).toBe(2)
    await settle()
    fault = undefined
    nowMs += 1000
    // This request still finds the breaker open. The store decides the next one.
    expect(await decide(open)).toMatchObject({ degraded: { cause: 'breaker-open' } })
    await settle()
    expect(await decide(open)).not.toHaveProperty('degraded')
  })

  it.each(['decideBroken', 'refund', 'reset'] as const)('%s also probes the store', async by => {
    engine = engineWith({}, { breaker: BREAKER })
    fail(UNREACHABLE)
    await kinds(2, open)
    await settle()
    nowMs += 1000
    calls = []
    if (by === 'decideBroken')
      engine.decideBroken({ candidates: [], ruleSet: ruleSetWith(), error: 0 }, options)
    if (by === 'refund')
      await engine.change(
        'refund',
        prepareRefund({ ruleSet: ruleSetWith(), rules: [], spentAt: 1 }),
        options.background,
      )
    if (by === 'reset') await engine.change('reset', prepareReset({ rules: [] }), options.background)
    expect(probes()).toBe(1)
  })

  it('local counts are handed over only after the store has answered', async () => {
    fail(UNREACHABLE)
    expect(await kinds(2, local)).toEqual(['allowed', 'allowed'])
    await settle()
    fault = undefined
    // Without rules there is no trip, so the store has not answered.
    await kinds(1)
    await settle()
    const states = async () => ((await redis.connection.send(['KEYS', 'sluice:*'])) as unknown[]).length
    expect(await states()).toBe(0)
    expect(await kinds(1, many)).toEqual(['allowed'])
    await settle()
    expect(await remaining(local)).toEqual([0])
  })
})

describe('peek', () => {
  it('spends nothing, and shows whether the cost would be admitted', async () => {
    await kinds(1, two)
    for (let i = 0; i < 3; i++) expect(await remaining(two)).toEqual([1])
    await kinds(1, two)
    expect((await engine.peek(demandOf(two), options)).decision).toMatchObject({ kind: 'denied' })
  })

  it('spends nothing in the isolate either, during an outage', async () => {
    fail(UNREACHABLE)
    for (let i = 0; i < 3; i++) {
      const { decision } = await engine.peek(demandOf(local), options)
      expect(decision).toMatchObject({
        ...{ kind: 'allowed', verdicts: [{ remaining: 2 }] },
        degraded: { cause: 'store-unreachable' },
      })
    }
    expect(await kinds(3, local)).toEqual(['allowed', 'allowed', 'denied'])
    expect((await engine.peek(demandOf(local), options)).decision.kind).toBe('denied')
  })
})

describe('a refund or a reset', () => {
  const bound = () => bindRule(two, KEY, 1, nowMs)
  const refund = (spentAt: number) =>
    engine.change(
      'refund',
      prepareRefund({
        ruleSet: ruleSetWith(two),
        rules: [{ ...bound(), units: 1, spent: 1 }],
        spentAt,
        now: nowMs * 1e3,
      }),
      options.background,
    )
  const reset = () =>
    engine.change('reset', prepareReset({ rules: [bound()], now: nowMs * 1e3 }), options.background)

  it('gives units back, and returns the state afterwards', async () => {
    const { at } = await engine.decide(demandOf(two), options)
    await kinds(1, two)
    expect(await refund(at)).toMatchObject({ at: nowMs * 1e3, verdicts: [{ remaining: 1 }] })
    expect(await reset()).toMatchObject({ verdicts: [{ remaining: 2 }] })
    expect(await remaining(two)).toEqual([2])
  })

  it.each([
    ['a reset', true, 'allowed'],
    ['a reset that has failed', false, 'denied'],
  ] as const)(
    'has an effect in an outage afterwards only if it has succeeded: %s',
    async (_, succeeds, kind) => {
      await kinds(2, local)
      if (!succeeds) fail(UNREACHABLE)
      const rules = [bindRule(local, KEY, 1, nowMs)]
      await engine.change('reset', prepareReset({ rules, now: nowMs * 1e3 }), options.background)
      fail(UNREACHABLE)
      expect(await kinds(1, local)).toEqual([kind])
    },
  )

  it('also works under a kill switch', async () => {
    const { at } = await engine.decide(demandOf(two), options)
    await kill()
    await kinds(1)
    await Promise.all(tasks)
    expect(await refund(at)).toMatchObject({ verdicts: [{ remaining: 2 }] })
  })

  it.each([
    ['the store is down', UNREACHABLE, 'store-unreachable'],
    ['limiting code throws', new TypeError('a bug'), 'internal'],
  ])('returns the cause and changes nothing if %s', async (_, error, cause) => {
    const { at } = await engine.decide(demandOf(two), options)
    fail(error)
    expect(await refund(at)).toMatchObject({ status: 'degraded', cause })
    expect(await reset()).toMatchObject({ status: 'degraded', cause })
    fault = undefined
    expect(await remaining(two)).toEqual([1])
  })
})

describe('requests above the limit on calls in flight', () => {
  const expiresAfterMs = 10_000

  it('are counted in the isolate by open and local rules, and refused by closed rules', async () => {
    // The requests give up after their first checks, because they may not wait at all.
    engine = engineWith(
      { sleep: async () => {} },
      { tripLimit: { maxRequests: 1, expiresAfterMs, maxWaitMs: 0, maxTotalWaitMs: 10_000 } },
    )
    let answer = () => {}
    fault = () => new Promise<void>(resolve => (answer = resolve))
    const waiting = engine.decide(demandOf(many), options)
    const overload = { degraded: { cause: 'overload' } }
    for (const rule of [open, local]) {
      expect(await decide(rule)).toMatchObject({ kind: 'allowed', verdicts: [{ remaining: 1 }], ...overload })
      expect(await kinds(2, rule)).toEqual(['allowed', 'denied'])
    }
    expect(await decide(closed)).toMatchObject({ kind: 'unavailable', ...overload })
    answer()
    expect((await waiting).decision).toMatchObject({ kind: 'allowed', verdicts: [{ remaining: 8 }] })
  })

  it('are sent when earlier calls have ended', async () => {
    engine = engineWith(
      {},
      { tripLimit: { maxRequests: 1, expiresAfterMs, maxWaitMs: 500, maxTotalWaitMs: 10_000 } },
    )
    for (let i = 0; i < 3; i++) expect(await decide(many)).not.toHaveProperty('degraded')
    fail(UNREACHABLE)
    for (let i = 0; i < 3; i++) {
      expect(await decide(many)).toMatchObject({ degraded: { cause: 'store-unreachable' } })
    }
  })
})
