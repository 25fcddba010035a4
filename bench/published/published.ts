/**
 * The short scripts in this folder, as algorithms are usually published: one limit of one identity. They are the counterparts for
 * algorithms that @upstash/ratelimit does not have.
 */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { Contender } from '../contenders.ts'
import type { Identity } from '../test-bed.ts'
import type { Transport } from '../transport.ts'

export interface Numbers {
  limit: number
  /** Milliseconds. */
  period: number
}

/** The arguments (ARGV) of each script, before the time of the caller. */
const ARGUMENTS = {
  gcra: ({ limit, period }: Numbers) => [period / limit, limit, 1],
  'gcra-with-time': ({ limit, period }: Numbers) => [period / limit, limit, 1],
  'leaky-bucket': ({ limit, period }: Numbers) => [limit, limit / period, 1],
  'sliding-log': ({ limit, period }: Numbers) => [limit, period],
}

export function published(
  { redis }: Transport,
  algorithm: keyof typeof ARGUMENTS,
  numbers: Numbers,
): Contender<Identity> {
  const source = readFileSync(new URL(`${algorithm}.lua`, import.meta.url), 'utf8')
  const sha1 = createHash('sha1').update(source).digest('hex')
  const constants = ARGUMENTS[algorithm](numbers)

  return async ({ consumer }) => {
    const keys = [`limit:${algorithm}:${consumer}`]
    const args = [...constants, Date.now()]
    const reply = await redis.evalsha(sha1, keys, args).catch(error => {
      if (!String(error).includes('NOSCRIPT')) throw error
      return redis.eval(source, keys, args)
    })
    return Number((reply as unknown[])[0]) === 1 ? 'allowed' : 'refused'
  }
}
