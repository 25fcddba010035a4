/** Limits by name on Node hold units in flight until their caller ends them, in every way. test/set-ups/rpc.test.ts has the same list. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { createLimiter } from '../../src/set-ups/limits/create-limiter.ts'
import { acquireTwice, LIMIT, UNIT_ENDS } from '../support/ending-list.ts'
import { type FastStore, startFastStore } from '../support/fast-store.ts'
import { catchUncaught } from '../support/uncaught.ts'

const CONFIG = {
  store: { deadline: '20s', breaker: false },
  limits: {
    exports: [{ name: 'at-once', by: ['account'], algorithm: 'concurrency', limit: LIMIT, ttl: '1h' }],
  },
} satisfies ConfigInput

let store: FastStore
beforeAll(async () => {
  store = await startFastStore()
})
afterAll(() => store?.close())

describe('units of a limit by name', () => {
  const uncaught = catchUncaught()
  const limiterWith = (waitUntil?: (task: Promise<unknown>) => void) =>
    createLimiter(CONFIG, { env: store.env, ...(waitUntil && { waitUntil }) })

  it.each(UNIT_ENDS)('are held until the caller %s', async end => {
    const limiter = limiterWith()
    const allowed = await acquireTwice(
      end,
      timeoutMs => limiter.acquire('exports', { account: end }, { timeoutMs }),
      units => units[Symbol.asyncDispose](),
    )
    expect([allowed, uncaught()]).toEqual([[true, true, false, true, true], []])
  })

  it('are not held if acquire throws', async () => {
    const limiter = limiterWith()
    await expect(limiter.acquire('exports', { customer: 'x' })).rejects.toThrow(TypeError)
    expect((await limiter.peek('exports', { account: 'throws' })).rules[0]!.remaining).toBe(LIMIT)
  })

  it.each(UNIT_ENDS)('are held until the caller %s, if waitUntil throws', async end => {
    const limiter = limiterWith(() => {
      throw new Error('The request has ended.')
    })
    const allowed = await acquireTwice(
      end,
      timeoutMs => limiter.acquire('exports', { account: `${end}, without waitUntil` }, { timeoutMs }),
      units => units[Symbol.asyncDispose](),
    )
    expect([allowed, uncaught()]).toEqual([[true, true, false, true, true], []])
  })
})
