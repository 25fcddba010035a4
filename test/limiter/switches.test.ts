/** Limits by name under live switches. Switches apply to calls, and never to refunds and resets. */
import { beforeEach, describe, expect, it } from 'vitest'
import type { Limiter, LimiterClock } from '../../src/set-ups/limits/limiter.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import { createSwitchBoard } from '../../src/switches/live.ts'
import { formatSwitches, type RuleSwitch, type Switches } from '../../src/switches/switches.ts'
import { configOf, describeOnRedisEngine, type RedisEngine } from '../support/engines.ts'
import { type CountedStore, storeOf } from '../support/stores.ts'
import { NOON } from '../support/traffic.ts'

const { limits } = configOf({
  rules: [{ name: 'x', by: 'consumer', algorithm: 'gcra', limit: 1, period: '1s' }],
  limits: {
    zendesk: [
      { name: 'two', algorithm: 'fixed-window', limit: 2, period: '1h' },
      { name: 'many', algorithm: 'fixed-window', limit: 9, period: '1h' },
      { name: 'none', algorithm: 'fixed-window', limit: 1, period: '1h', mode: 'off' },
    ],
    alone: [{ name: 'two', algorithm: 'fixed-window', limit: 2, period: '1h' }],
  },
})
const by = { at: new Date(0), by: 'ops' }

describeOnRedisEngine('a limit by name', fresh => {
  let redis: RedisEngine
  let store: CountedStore
  let limiter: Limiter
  let nowMs: number
  beforeEach(async () => {
    redis = await fresh()
    store = storeOf(redis)
    nowMs = 0
    const clock: LimiterClock = { now: () => NOON, sleep: async () => {} }
    limiter = createLimiterOnStore({ limits }, store, {
      clock,
      board: createSwitchBoard({ now: () => nowMs }),
    })
  })

  const put = async (switches: Switches) => {
    await redis.send(['SET', 'sluice:{switches}', formatSwitches(switches)])
    nowMs += 1000
  }
  const set = (name: string, change: Pick<RuleSwitch, 'mode' | 'share'>) =>
    put({ rules: new Map([[name, { ...by, ...change }]]) })
  const ask = async (times: number, name = 'zendesk') => {
    const allowed: boolean[] = []
    for (let i = 0; i < times; i++) allowed.push((await limiter.limit(name)).allowed)
    return allowed
  }
  const left = async (rule: string) =>
    (await limiter.peek('zendesk')).rules.find(({ name }) => name === rule)?.remaining

  it('is switched by the names of limit and rule, and the first call reads the switch in its own trip', async () => {
    expect(await ask(3)).toEqual([true, true, false])
    await set('zendesk/two', { mode: 'off' })
    store.requests.length = 0
    expect(await ask(2)).toEqual([true, true])
    // The switches are read together with the first call.
    expect(store.requests).toEqual([2, 1])
    // A rule of the same name in another limit has its own switch.
    expect(await ask(3, 'alone')).toEqual([true, true, false])
  })

  it('refunds nothing for a call that a switch admitted after a refusal, because the call has spent nothing', async () => {
    await ask(2)
    await set('zendesk/two', { mode: 'shadow' })
    const decision = await limiter.limit('zendesk')
    expect([decision.allowed, decision.costs]).toEqual([true, {}])
    expect(await left('many')).toBe(7)
    await limiter.refund(decision)
    expect(await left('many')).toBe(7)
  })

  it('refunds and resets units that were spent earlier, whatever the switches are now', async () => {
    await set('zendesk/none', { mode: 'enforce' })
    await limiter.peek('zendesk')
    const decision = await limiter.limit('zendesk')
    expect(decision.costs).toEqual({ two: 1, many: 1, none: 1 })
    expect(await ask(1)).toEqual([false])
    await put({ kill: by, rules: new Map() })
    await limiter.peek('zendesk')
    expect((await limiter.refund(decision)).allowed).toBe(true)
    await set('zendesk/none', { mode: 'enforce' })
    await limiter.peek('zendesk')
    expect([await left('two'), await left('none')]).toEqual([2, 1])
    await ask(2)
    await put({ kill: by, rules: new Map() })
    await limiter.peek('zendesk')
    expect((await limiter.reset('zendesk')).allowed).toBe(true)
    await put({ rules: new Map() })
    await limiter.peek('zendesk')
    expect(await left('two')).toBe(2)
  })

  it('reports a call that was bound under a kill switch as degraded, even if the switch is turned off meanwhile', async () => {
    await put({ kill: by, rules: new Map() })
    await limiter.peek('alone')
    await put({ rules: new Map() })
    expect(await limiter.limit('alone')).toMatchObject({
      ...{ allowed: true, degraded: 'kill-switch', rules: [], costs: {} },
    })
    expect(await limiter.limit('alone')).not.toHaveProperty('degraded')
  })

  it('spends nothing under a rule that is off', async () => {
    const { allowed, costs } = await limiter.limit('zendesk')
    expect([allowed, costs]).toEqual([true, { two: 1, many: 1 }])
  })

  describe('without any rule left', () => {
    it.each<[string, Switches]>([
      ['kill', { kill: by, rules: new Map() }],
      ['off', { rules: new Map([['alone/two', { ...by, mode: 'off' }]]) }],
    ])(
      'reads only the switches, once a second, so that its rules can be switched on again: %s',
      async (name, switches) => {
        await ask(3, 'alone')
        await put(switches)
        expect(await ask(2, 'alone')).toEqual([true, true])
        const killed = name === 'kill' ? { degraded: 'kill-switch' } : {}
        expect(await limiter.limit('alone')).toMatchObject({ allowed: true, rules: [], ...killed })
        await put({ rules: new Map() })
        store.requests.length = 0
        expect(await ask(2, 'alone')).toEqual([true, false])
        expect(store.requests).toEqual([1, 1])
      },
    )
  })
})

it('a limiter without a board does not read switches', async () => {
  const requests: number[] = []
  const store = {
    run: async (calls: readonly unknown[]) => {
      requests.push(calls.length)
      return [[1, '', 1, 0, 1, 1, 0, 0, 1, 1, 0]]
    },
    ping: async () => {},
  }
  expect((await createLimiterOnStore({ limits }, store).limit('zendesk')).allowed).toBe(true)
  expect(requests).toEqual([1])
})
