import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { KEY_LOCKING_SCRIPT, PLAIN_SCRIPT } from '../../src/lua/bundle.generated.ts'
import { bundleLua } from '../../src/node/bundle-lua.ts'
import { ModelEngine, RedisEngine } from '../support/engines.ts'
import { randomFrom, SEED } from '../support/random.ts'
import { describeOnRedis, type TestRedis } from '../support/redis.ts'
import { evaluationOf, NOON, randomCount, randomRules, randomStep } from '../support/traffic.ts'

const sha1 = (text: string) => createHash('sha1').update(text).digest('hex')

describe('the bundle', () => {
  it('is what the .lua files make (npm run bundle-lua)', () => {
    const written = readFileSync(new URL('../../src/lua/bundle.generated.ts', import.meta.url), 'utf8')
    expect(written).toBe(bundleLua())
  })

  it('carries the SHA-1 of both builds, which count lines alike', () => {
    for (const { source, sha1: sha } of [KEY_LOCKING_SCRIPT, PLAIN_SCRIPT]) expect(sha).toBe(sha1(source))
    expect(KEY_LOCKING_SCRIPT.source.split('\n').slice(1)).toEqual(PLAIN_SCRIPT.source.split('\n').slice(1))
    expect(KEY_LOCKING_SCRIPT.source.startsWith('#!lua flags=allow-key-locking\n')).toBe(true)
  })

  it('formats every number that goes to Redis itself', () => {
    // tostring and .. keep 14 digits; a microsecond of today has 16.
    expect(PLAIN_SCRIPT.source).not.toMatch(/tostring\(|\.\. *(now|idle_at|keep_ms)\b/)
  })
})

describeOnRedis('the script', start => {
  let redis: TestRedis
  beforeAll(async () => {
    redis = await start()
  })
  afterAll(() => redis?.close())

  it(`says the same on a server without the struct library (SEED=${SEED})`, async () => {
    const source = PLAIN_SCRIPT.source.replace("rawget(_G, 'struct')", 'nil')
    expect(source).not.toBe(PLAIN_SCRIPT.source)
    await redis.connection.send(['FLUSHALL'])
    const bare = new RedisEngine(redis.connection, { source, sha1: sha1(source) })
    const whole = new RedisEngine(redis.connection)
    const model = new ModelEngine()
    const random = randomFrom(SEED)
    let rules = randomRules(random)
    let now = NOON
    for (let i = 0; i < 300; i++) {
      if (random.chance(0.05)) rules = randomRules(random)
      now += randomStep(random)
      const evaluation = evaluationOf(randomCount(random, rules, now), now)
      // By turns: what the one has written the other reads.
      const actual = await (random.chance(0.5) ? bare : whole).evaluate(evaluation)
      expect(actual, `request ${i}, SEED=${SEED}`).toEqual(await model.evaluate(evaluation))
    }
  })

  it('is known to Redis by its SHA-1', async () => {
    expect(String(await redis.connection.send(['SCRIPT', 'LOAD', PLAIN_SCRIPT.source]))).toBe(
      PLAIN_SCRIPT.sha1,
    )
  })
})
