/**
 * Everything that changes what a rule has spent meets in one program: leases, overrides, reservations that are settled, renewed, lost or left
 * to end, refunds, resets and pauses of an identity. The program itself pauses for longer than reservations and units in flight last, and its clock is set
 * back. The model predicts every reply, of the gateway and of limits by name, with and without loops in the scripts.
 */
import { expect, it, onTestFinished } from 'vitest'
import { randomCases } from '../selection.ts'
import { describeOnRedisEngine, RedisEngine } from '../support/engines.ts'
import { OF_EVERYTHING, runEverything } from '../support/everything.ts'
import { FC_PATH, SEED } from '../support/random.ts'
import { startRedis } from '../support/redis.ts'

/** `PARITY_REQUESTS=40000` makes 2,000 of them. */
const CASES = Number(process.env.PARITY_REQUESTS ?? 2400) / 20
/** The embedded Redis takes a few milliseconds for each decision, and more on a busy machine. */
const TIMED = { timeout: 60_000 + 1500 * CASES }

describeOnRedisEngine('leases, overrides, reservations and pauses together', (fresh, kind) => {
  it(`are as the model predicts (SEED=${SEED})`, TIMED, async () => {
    const runs = randomCases(CASES, kind)
    const redis = await fresh()
    const other = await startRedis(kind)
    onTestFinished(() => other.close())
    const occurred = await runEverything(runs, [redis, new RedisEngine(other.connection, undefined, kind)])
    // Few runs say little about shares.
    if (FC_PATH || runs < 100) return
    for (const what of OF_EVERYTHING) expect(occurred.get(what) ?? 0, what).toBeGreaterThan(runs / 20)
  })
})
