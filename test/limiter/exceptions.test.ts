/**
 * Limiting code throws after the store has admitted a request. The fallbacks then decide the request, so what it has got in the store must be
 * free again at once, and not only after its ttl.
 */
import { expect, it } from 'vitest'
import type { Rule } from '../../src/config/compile-rule.ts'
import { NO_BOARD } from '../../src/switches/live.ts'
import { describeOnRedisEngine, rulesOf } from '../support/engines.ts'
import { isolateOn, Timers } from '../support/isolates.ts'
import { settledRule } from '../support/settled-rules.ts'

const RESERVING = settledRule({
  ...{ name: 'tokens', by: 'consumer', algorithm: 'fixed-window', limit: 1000, period: '1d' },
  onStoreFailure: 'open',
})
const [IN_FLIGHT] = rulesOf({
  ...{ name: 'in-flight', by: 'consumer', algorithm: 'concurrency', limit: 1, ttl: '10s' },
  onStoreFailure: 'open',
}) as [Rule]

describeOnRedisEngine('a request whose decision fails after the store has admitted it', fresh => {
  async function start() {
    const [redis, time] = [await fresh(), new Timers()]
    let readings = 0
    const board = {
      ...NO_BOARD,
      current() {
        readings += 1
        // The first reading is before the trip, the second one after it.
        if (readings === 2) throw new Error('a bug')
        return NO_BOARD.current()
      },
    }
    return { time, failing: isolateOn(redis, time, 'A', { board }), other: isolateOn(redis, time, 'B') }
  }

  it('has nothing reserved', async () => {
    const { time, failing, other } = await start()
    const { decision } = await failing.ask(RESERVING, 400)
    expect(decision).toMatchObject({ kind: 'allowed', degraded: { cause: 'internal' } })
    await time.pass(250)
    expect((await other.ask(RESERVING, 0)).outcome!.verdicts[0]!.remaining).toBe(1000)
  })

  it('has no units in flight', async () => {
    const { time, failing, other } = await start()
    const { decision } = await failing.ask(IN_FLIGHT)
    expect(decision).toMatchObject({ kind: 'allowed', degraded: { cause: 'internal' } })
    await time.pass(250)
    expect((await other.ask(IN_FLIGHT)).decision.kind).toBe('allowed')
  })
})
