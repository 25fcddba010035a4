/** Measures the bytes that Redis stores for one caller with a window of a second, a minute and an hour. */
import { Ratelimit } from '@upstash/ratelimit'
import { consumerStateKey } from '../../src/store/keys.ts'
import { withClockSetBack } from '../clock.ts'
import { sluice } from '../contenders.ts'
import { bytesOf, keysOf } from '../redis-statistics.ts'
import type { Findings } from '../report.ts'
import { WINDOWS } from '../rules.ts'
import { newCallers, type TestBed } from '../test-bed.ts'
import { throughBridge } from '../transport.ts'

const REQUESTS = 3
/** The size of one record of a state, from src/script/prelude.lua. */
const RECORD_BYTES = 14

export async function memory(bed: TestBed): Promise<Findings> {
  const [caller] = await newCallers(1, bed)
  const { consumer } = caller!

  const decide = sluice(throughBridge(bed.near), 'as configured')
  for (let i = 0; i < REQUESTS; i++) await decide(caller!)
  const key = consumerStateKey(consumer)
  const own = await bytesOf(bed.redis, [key])
  const stateBytes = Number(await bed.redis.send(['STRLEN', key]))
  if (stateBytes !== WINDOWS.length * RECORD_BYTES) throw new Error(`The state has ${stateBytes} bytes`)

  const peerKeys = await slidingWindowKeys(bed, consumer)
  const peers = await bytesOf(bed.redis, peerKeys)
  const lengths = peerKeys.map(name => name.length)
  const ratio = own / peers
  return {
    rows: [
      {
        what: 'bytes in Redis per caller with three windows',
        sluice: `${own} B in 1 key`,
        comparison: `three sliding windows: ${peers} B in ${peerKeys.length} keys`,
        ratio,
        target: { text: '≤ 0.3×', isReached: ratio <= 0.3 },
      },
    ],
    notes: [
      `Bytes in Redis are from MEMORY USAGE. The key of Sluice has ${key.length} characters and a state of ${stateBytes} bytes. The keys of ` +
        `@upstash/ratelimit have ${Math.min(...lengths)} to ${Math.max(...lengths)} characters. MEMORY USAGE does not include the entry that ` +
        'Redis keeps for the expiry of each key.',
    ],
  }
}

/** The keys of three sliding windows, each used in the previous and in the current window. */
async function slidingWindowKeys({ near, redis }: TestBed, consumer: string): Promise<string[]> {
  for (const { period, limit, milliseconds } of WINDOWS) {
    const limiter = new Ratelimit({
      redis: throughBridge(near).redis,
      limiter: Ratelimit.slidingWindow(limit, period),
      prefix: `rl:${period}`,
    })
    for (const back of [milliseconds, 0]) {
      await withClockSetBack(back, async () => {
        for (let i = 0; i < REQUESTS; i++) await limiter.limit(consumer)
      })
    }
  }
  const keys = await keysOf(redis, `rl:*:${consumer}:*`)
  if (keys.length !== 2 * WINDOWS.length) throw new Error(`Expected two keys a window: ${keys.join(' ')}`)
  return keys
}
