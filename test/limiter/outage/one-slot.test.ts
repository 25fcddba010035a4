/** One slot of a cluster does not answer: its rules are decided by the isolate, those of the other slots by the store. */
import { expect, it } from 'vitest'
import type { LimitRuleInput, RuleInput } from '../../../src/config/check/schema.ts'
import { GatewayError } from '../../../src/errors.ts'
import type { Subject } from '../../../src/script/evaluation.ts'
import { addressStateKey, consumerKey, consumerStateKey, credentialKey } from '../../../src/store/keys.ts'
import { credentialOf, describeOnRedisEngine, rulesOf } from '../../support/engines.ts'
import { isolateOn, Timers } from '../../support/isolates.ts'

const ADDRESS = addressStateKey('192.0.2.1')
const CONSUMER = consumerStateKey('acme')
const WINDOW = { algorithm: 'fixed-window', limit: 10, period: '1h' } as const

describeOnRedisEngine('while one slot of a cluster does not answer', fresh => {
  /** An isolate for which the slot of the address does not answer, and requests that count by both identities. */
  async function isolateWith({ byAddress, byConsumer }: Record<string, Partial<LimitRuleInput>> = {}) {
    const redis = await fresh()
    const time = new Timers()
    const [address, consumer] = rulesOf(
      { ...WINDOW, name: 'address', by: 'address', ...byAddress } as RuleInput,
      { ...WINDOW, name: 'consumer', by: 'consumer', ...byConsumer } as RuleInput,
    )
    const isolate = isolateOn(redis, time, 'A', { isCluster: true })
    const isOfAddress = (call: object) => 'keys' in call && (call.keys as string[]).includes(ADDRESS)
    isolate.fault = async run => {
      const calls = isolate.requests.at(-1)!
      const failure = new GatewayError('ERR_STORE_UNREACHABLE', 'The slot is down.')
      return (await run()).map((reply, i) => (isOfAddress(calls[i]!) ? failure : reply))
    }
    const ask = async (subject?: Subject) => {
      const rules = [
        { rule: address!, key: ADDRESS, cost: 1 },
        { rule: consumer!, key: CONSUMER, cost: 1 },
      ]
      const { decision } = await isolate.askWith(rules, subject)
      return decision
    }
    const remaining = async () => {
      await time.pass(2000)
      const { decision } = await isolateOn(redis, time, 'B').ask(consumer!, 0, CONSUMER)
      return 'verdicts' in decision ? decision.verdicts[0]!.remaining : undefined
    }
    return { redis, isolate, ask, remaining }
  }

  it('an admitted request is charged once to the slots that have answered', async () => {
    const { isolate, ask, remaining } = await isolateWith()
    for (let i = 0; i < 4; i++) {
      expect(await ask()).toMatchObject({ kind: 'allowed', degraded: { cause: 'store-unreachable' } })
    }
    isolate.fault = undefined
    expect((await ask()).kind).toBe('allowed')
    expect(await remaining()).toBe(5)
  })

  it('an admitted request has the verdicts of all slots', async () => {
    const { ask } = await isolateWith({
      byConsumer: { algorithm: 'leaky-bucket', limit: 1, period: '1s', queue: 5 } as Partial<LimitRuleInput>,
    })
    await ask()
    const decision = await ask()
    expect(decision).toMatchObject({ kind: 'allowed', delay: 1e6 })
    expect('verdicts' in decision && decision.verdicts.map(({ rule }) => rule.name)).toEqual([
      'address',
      'consumer',
    ])
  })

  it.each([
    ['that the isolate refuses', { limit: 1 }, 'denied', 9],
    ['that needs the slot', { onStoreFailure: 'closed' as const }, 'unavailable', 10],
  ])('a request %s is charged to none', async (_, byAddress, kind, left) => {
    const { ask, remaining } = await isolateWith({ byAddress })
    await ask()
    for (let i = 0; i < 3; i++) expect((await ask()).kind).toBe(kind)
    expect(await remaining()).toBe(left)
  })

  it('a rule that must not be decided without the store admits, if its own slot has', async () => {
    const { ask } = await isolateWith({ byConsumer: { onStoreFailure: 'closed' } })
    expect((await ask()).kind).toBe('allowed')
  })

  it('a key passes that the slot of its consumer has verified, with its plan', async () => {
    const { redis, ask } = await isolateWith()
    const key = (digest: string) =>
      ({
        kind: 'key',
        ...{ consumerKey: consumerKey('acme'), credentialKey: credentialKey('acme', digest) },
      }) as const
    await redis.setRecord(credentialKey('acme', 'ff'), credentialOf('free'))
    expect(await ask(key('ff'))).toMatchObject({ kind: 'allowed', plan: 'free', degraded: {} })
    expect(await ask(key('00'))).toMatchObject({ kind: 'unknown-credential' })
  })
})
