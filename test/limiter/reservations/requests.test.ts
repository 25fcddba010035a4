/** Requests that reserve units: how they are decided, how they end, and what it costs in HTTP requests. */
import { expect, it } from 'vitest'
import { GatewayError } from '../../../src/errors.ts'
import { createAnswers } from '../../../src/limiter/answers/answers.ts'
import { createKnownAnswers } from '../../../src/limiter/answers/known.ts'
import { createRefusalMemory } from '../../../src/limiter/answers/refusals.ts'
import type { Decided } from '../../../src/limiter/engine-shape.ts'
import type { Subject } from '../../../src/script/evaluation.ts'
import {
  consumerKey,
  consumerStateKey,
  credentialKey,
  pointerKey,
  UNKNOWN_CONSUMER,
} from '../../../src/store/keys.ts'
import { NO_SWITCHES } from '../../../src/switches/switches.ts'
import { credentialOf, describeOnRedisEngine, ruleSetFor } from '../../support/engines.ts'
import { isolateOn, Timers } from '../../support/isolates.ts'
import { settled, settledRule, TERMS } from '../../support/settled-rules.ts'

const INPUT = {
  name: 'tokens',
  by: 'consumer',
  algorithm: 'fixed-window',
  limit: 1000,
  period: '1d',
} as const
const RULE = settledRule(INPUT)

/** The store has executed the calls. */
async function loseReply(run: () => Promise<unknown[]>): Promise<unknown[]> {
  await run()
  throw new GatewayError('ERR_STORE_TIMEOUT', 'late', { fate: 'may-have-run' })
}

const standingOf = ({ decision }: Pick<Decided, 'decision'>) => {
  if (decision.kind !== 'allowed' && decision.kind !== 'denied') throw new Error(decision.kind)
  const [{ remaining, debt, reserved }] = decision.verdicts as [(typeof decision.verdicts)[number]]
  return { kind: decision.kind, remaining, debt, reserved }
}

describeOnRedisEngine('a request that reserves', fresh => {
  async function start() {
    const redis = await fresh()
    const time = new Timers()
    return { redis, time, isolate: isolateOn(redis, time, 'A') }
  }

  it('is settled when it is over: the store then counts its cost', async () => {
    const { time, isolate } = await start()
    const decided = await isolate.ask(RULE, 200)
    expect(standingOf(decided)).toEqual({ kind: 'allowed', remaining: 800, debt: 0, reserved: 200 })
    expect(decided.awaitsEnding).toBe(true)
    decided.finish('complete', rule => (rule === RULE ? 731 : undefined))
    decided.finish('complete', () => 5)
    await time.pass(250)
    expect(standingOf(await isolate.ask(RULE, 0))).toMatchObject({ remaining: 269, debt: 0 })
  })

  it('is settled by the next decision about its identity, without a call of its own', async () => {
    const { isolate } = await start()
    const decided = await isolate.ask(RULE, 200)
    decided.finish('complete', () => 31)
    expect(standingOf(await isolate.ask(RULE, 300))).toMatchObject({ kind: 'allowed', remaining: 669 })
    expect(isolate.requests.map(calls => calls.length)).toEqual([1, 1])
    expect(isolate.settlements.backlog).toEqual({ waiting: 0, dropped: 0 })
  })

  it('is settled by a decision that is refused, too, and makes room for it first', async () => {
    const { isolate } = await start()
    const [first, second] = [await isolate.ask(RULE, 600), await isolate.ask(RULE, 400)]
    first.finish('complete', () => 500)
    expect(standingOf(await isolate.ask(RULE, 100))).toMatchObject({ kind: 'allowed', remaining: 0 })
    second.finish('complete', () => 450)
    expect(standingOf(await isolate.ask(RULE, 100))).toMatchObject({ kind: 'denied', remaining: 0, debt: 50 })
    expect(isolate.settlements.backlog).toEqual({ waiting: 0, dropped: 0 })
    expect(standingOf(await isolate.ask(RULE, 0))).toMatchObject({ remaining: 0, debt: 50 })
    expect(isolate.requests.flat().filter(call => 'args' in call && call.args[0] === '')).toEqual([])
  })

  it('is settled once if the reply of the decision that settles it is lost', async () => {
    const { time, isolate } = await start()
    const decided = await isolate.ask(RULE, 200)
    decided.finish('complete', () => 31)
    isolate.fault = loseReply
    await isolate.ask(RULE, 1)
    isolate.fault = undefined
    expect(isolate.settlements.backlog.waiting).toBeGreaterThan(0)
    await time.pass(20_000)
    expect(isolate.settlements.backlog).toEqual({ waiting: 0, dropped: 0 })
    // The fallback has counted the unit of the other request.
    expect(standingOf(await isolate.ask(RULE, 0))).toMatchObject({ remaining: 968 })
  })

  it('can cost more than the limit: the next ones are refused until the debt is worked off', async () => {
    const { time, isolate } = await start()
    const decided = await isolate.ask(RULE, 200)
    decided.finish('complete', () => 1300)
    await time.pass(250)
    expect(standingOf(await isolate.ask(RULE, 1))).toMatchObject({ kind: 'denied', remaining: 0, debt: 300 })
  })

  it('keeps its estimate if its cost is unknown, and if it ends unsettled', async () => {
    const { time, isolate } = await start()
    for (const settling of [undefined, () => undefined, 'unsettled'] as const) {
      const decided = await isolate.ask(RULE, 100)
      decided.finish('failed', settling)
      await time.pass(1000)
    }
    await time.pass(2 * TERMS.ttlMs)
    expect(standingOf(await isolate.ask(RULE, 0))).toMatchObject({ remaining: 700 })
  })

  it('is settled under the consumer that only the store knew', async () => {
    const { redis, time, isolate } = await start()
    const digest = 'a'.repeat(64)
    await redis.setRecord(pointerKey(digest), 'acme')
    await redis.setRecord(credentialKey('acme', digest), credentialOf('free'))
    const subject: Subject = {
      kind: 'pointer',
      consumerKey: consumerKey(UNKNOWN_CONSUMER),
      credentialKey: credentialKey(UNKNOWN_CONSUMER, digest),
      pointerKey: pointerKey(digest),
    }
    const key = consumerStateKey(UNKNOWN_CONSUMER)
    const decided = await isolate.askWith([{ rule: RULE, key, cost: 200 }], subject)
    expect(decided.stake?.reservation).toMatchObject({ consumerKey: consumerKey('acme'), plan: 'free' })
    decided.finish('complete', () => 50)
    await time.pass(250)
    expect(standingOf(await isolate.ask(RULE, 0))).toMatchObject({ remaining: 950 })
  })

  it('is not answered from memory, so each one is decided by the store', async () => {
    const redis = await fresh()
    const time = new Timers()
    const known = createKnownAnswers(
      () => time.nowMs,
      () => NO_SWITCHES,
    )
    const answers = createAnswers(known, createRefusalMemory(known, 1000), undefined)
    const isolate = isolateOn(redis, time, 'A', { answers })
    const all = await isolate.ask(RULE, 1000)
    expect(standingOf(await isolate.ask(RULE, 1)).kind).toBe('denied')
    all.finish('complete', () => 10)
    await time.pass(250)
    expect(standingOf(await isolate.ask(RULE, 1)).kind).toBe('allowed')
  })

  it('reserves nothing, and awaits nothing, if its cost is 0', async () => {
    const { time, isolate } = await start()
    const decided = await isolate.ask(RULE, 0)
    expect(decided.awaitsEnding).toBe(false)
    decided.finish('complete', () => 5)
    await time.pass(TERMS.ttlMs)
    expect(isolate.requests).toHaveLength(1)
  })

  it('is counted with its estimate while the store is away, and nothing settles it', async () => {
    const { time, isolate } = await start()
    isolate.fault = async () => {
      throw new GatewayError('ERR_STORE_UNREACHABLE', 'away', { fate: 'not-sent' })
    }
    const decided = await isolate.ask(RULE, 200)
    expect(decided).toMatchObject({ decision: { kind: 'allowed' }, awaitsEnding: false })
    decided.finish('complete', () => 5)
    isolate.fault = undefined
    // The first answer shows that the store is back. Then the isolate hands over what it has counted.
    await isolate.ask(RULE, 0)
    await time.pass(1000)
    expect(standingOf(await isolate.ask(RULE, 0))).toMatchObject({ remaining: 800 })
  })

  it('is counted once if only the reply is lost: by the isolate, and what the store has reserved is given back', async () => {
    const { time, isolate } = await start()
    isolate.fault = loseReply
    const decided = await isolate.ask(RULE, 400)
    expect(decided).toMatchObject({ decision: { kind: 'allowed' }, awaitsEnding: false })
    decided.finish('complete', () => 5)
    isolate.fault = undefined
    await isolate.ask(RULE, 0)
    await time.pass(1000)
    expect(standingOf(await isolate.ask(RULE, 0))).toMatchObject({ remaining: 600 })
    await time.pass(2 * TERMS.ttlMs)
    expect(standingOf(await isolate.ask(RULE, 0))).toMatchObject({ remaining: 600 })
  })

  it('takes nothing if only the reply is lost, and the request was refused', async () => {
    const { redis, time, isolate } = await start()
    const closed = { ...RULE, onStoreFailure: 'closed' as const }
    const all = settled(closed, { onUnsettled: 'release' })
    const rules = [
      { rule: closed, key: consumerStateKey('acme'), cost: 2000 },
      { rule: { ...all, name: 'all', tag: 'zzz', family: 'zzz' }, key: consumerStateKey('all'), cost: 300 },
    ]
    isolate.fault = loseReply
    expect((await isolate.askWith(rules)).decision.kind).toBe('unavailable')
    isolate.fault = undefined
    const seenBy = async (name: string) => {
      const seen = await isolateOn(redis, time, name).askWith(rules.map(each => ({ ...each, cost: 0 })))
      return seen.outcome!.verdicts.map(({ remaining }) => remaining)
    }
    expect(await seenBy('B')).toEqual([0, 700])
    await time.pass(250)
    expect(await seenBy('C')).toEqual([1000, 1000])
  })

  it('whose reply is lost is given back also if the next decision about its identity settles along', async () => {
    const { redis, time, isolate } = await start()
    const closed = { ...RULE, onStoreFailure: 'closed' as const }
    isolate.fault = loseReply
    await isolate.ask(closed, 200)
    isolate.fault = undefined
    // The first answer shows that the store is back.
    await isolate.ask(closed, 0)
    await isolate.ask(closed, 100)
    await time.pass(1000)
    expect(standingOf(await isolateOn(redis, time, 'B').ask(closed, 0)).remaining).toBe(900)
    expect(isolate.settlements.backlog).toEqual({ waiting: 0, dropped: 0 })
  })

  it('whose reply is lost is looked for again, because its decision can arrive after its settlement', async () => {
    const { redis, time, isolate } = await start()
    const closed = { ...RULE, onStoreFailure: 'closed' as const }
    const { promise: isLate, resolve: arrive } = Promise.withResolvers<void>()
    let late: Promise<unknown> | undefined
    isolate.fault = async run => {
      late = isLate.then(run)
      return await loseReply(async () => [])
    }
    await isolate.ask(closed, 200)
    isolate.fault = undefined
    await time.pass(1000)
    arrive()
    await late
    const remaining = async () => standingOf(await isolateOn(redis, time, 'B').ask(closed, 0)).remaining
    expect(await remaining()).toBe(800)
    await time.pass(2000)
    expect(await remaining()).toBe(1000)
    expect(isolate.settlements.backlog).toEqual({ waiting: 0, dropped: 0 })
    await time.pass(10_000)
    expect(isolate.requests).toHaveLength(3)
  })

  it('whose reply is lost is given back to a consumer that the isolate has seen before', async () => {
    const { redis, time, isolate } = await start()
    const digest = 'b'.repeat(64)
    await redis.setRecord(pointerKey(digest), 'acme')
    await redis.setRecord(credentialKey('acme', digest), credentialOf('free'))
    const subject: Subject = {
      kind: 'pointer',
      consumerKey: consumerKey(UNKNOWN_CONSUMER),
      credentialKey: credentialKey(UNKNOWN_CONSUMER, digest),
      pointerKey: pointerKey(digest),
    }
    const demanded = [{ rule: RULE, key: consumerStateKey(UNKNOWN_CONSUMER), cost: 200 }]
    const remaining = async () => standingOf(await isolateOn(redis, time, 'B').ask(RULE, 0)).remaining
    isolate.fault = loseReply
    // Nothing is known of the first one, so what it has reserved stays until its ttl.
    await isolate.askWith(demanded, subject)
    await isolate.askWith(demanded, subject, () => ({ plan: 'free', consumer: 'acme' }))
    isolate.fault = undefined
    expect(await remaining()).toBe(600)
    await time.pass(1000)
    expect(await remaining()).toBe(800)
  })

  it('leaves room for others while the store is away, as the answer to its settlement has said', async () => {
    const { time, isolate } = await start()
    const decided = await isolate.ask(RULE, 900)
    decided.finish('complete', () => 100)
    await time.pass(250)
    isolate.fault = async () => {
      throw new GatewayError('ERR_STORE_UNREACHABLE', 'away', { fate: 'not-sent' })
    }
    expect((await isolate.ask(RULE, 800)).decision.kind).toBe('allowed')
    expect((await isolate.ask(RULE, 200)).decision.kind).toBe('denied')
  })

  it('is settled by a process that stops', async () => {
    const { time, isolate } = await start()
    const decided = await isolate.ask(RULE, 200)
    decided.finish('complete', () => 5)
    await isolate.engine.stop()
    expect(isolate.requests).toHaveLength(2)
    expect(standingOf(await isolate.ask(RULE, 0))).toMatchObject({ remaining: 995 })
    await time.pass(TERMS.ttlMs)
  })

  it('gives units of several identities back, each once', async () => {
    const { redis, time, isolate } = await start()
    const other = settled(RULE, { onUnsettled: 'release' })
    const rules = [
      { rule: RULE, key: consumerStateKey('acme'), cost: 200 },
      { rule: { ...other, name: 'all', tag: 'zzz', family: 'zzz' }, key: consumerStateKey('all'), cost: 300 },
    ]
    const decided = await isolate.askWith(rules)
    decided.finish('complete', rule => (rule.name === 'all' ? 30 : 20))
    await time.pass(250)
    const seen = await isolateOn(redis, time, 'B').askWith(rules.map(each => ({ ...each, cost: 0 })))
    expect(seen.outcome!.verdicts.map(({ remaining }) => remaining)).toEqual([980, 970])
  })

  it('that ends unsettled is given back although many others before it wait for a rule that no request has', async () => {
    const { time, isolate } = await start()
    const key = consumerStateKey('acme')
    const terms = { onUnsettled: 'release', ttlMs: 1000 } as const
    const released = settled(RULE, terms)
    const rare = settled({ ...RULE, name: 'rare', tag: 'rrr', family: 'rrr' }, terms)
    const keyed = [released, rare].map(rule => ({ rule, key }))
    const ruleSet = ruleSetFor(keyed, { plans: [], hasSubject: false })
    const ask = async (rule: typeof RULE, cost: number) => {
      const background = () => {}
      const decided = await isolate.engine.decide({ rules: [{ rule, key, cost }], ruleSet }, { background })
      decided.finish('failed', 'unsettled')
      return standingOf(decided).remaining
    }
    for (let i = 0; i < 70; i++) await ask(rare, 1)
    await time.pass(10)
    for (let i = 0; i < 3; i++) await ask(released, 100)
    await time.pass(1000)
    expect(await ask(released, 0)).toBe(1000)
    expect(await ask(rare, 0)).toBe(1000)
  })

  it('adds at most 0.1 HTTP requests each, at 20 requests a second', async () => {
    const { time, isolate } = await start()
    const REQUESTS = 100
    for (let i = 0; i < REQUESTS; i++) {
      void isolate.ask(RULE, 2).then(({ finish }) => time.timer(700, () => finish('complete', () => 1)))
      await time.pass(50)
    }
    await time.pass(3000)
    expect(isolate.requests.length / REQUESTS).toBeLessThanOrEqual(1.1)
    expect(standingOf(await isolate.ask(RULE, 0))).toMatchObject({ remaining: 900 })
  })
})
