import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { bundleLua } from '../../src/node/bundle-lua.ts'
import { DECIDE, REFUND, RESET } from '../../src/script/scripts.generated.ts'
import type { Script } from '../../src/store/store.ts'
import { ModelEngine, RedisEngine, type TimedEvaluation } from '../support/engines.ts'
import { forEvery } from '../support/property.ts'
import { SEED } from '../support/random.ts'
import { describeOnRedis, type TestRedis } from '../support/redis.ts'
import { newCaller, played, traffic } from '../support/traffic.ts'

const SCRIPTS = [DECIDE, REFUND, RESET]

const sha1 = (text: string) => createHash('sha1').update(text).digest('hex')

describe('the bundle', () => {
  it('is what the .lua files make (npm run bundle-lua)', () => {
    const written = readFileSync(new URL('../../src/script/scripts.generated.ts', import.meta.url), 'utf8')
    expect(written).toBe(bundleLua())
  })

  it('carries the SHA-1 of both builds, which count lines alike', () => {
    for (const { keyLocking, plain } of SCRIPTS) {
      for (const { source, sha1: sha } of [keyLocking, plain]) expect(sha).toBe(sha1(source))
      expect(keyLocking.source.split('\n').slice(1)).toEqual(plain.source.split('\n').slice(1))
      expect(keyLocking.source.startsWith('#!lua flags=allow-key-locking\n')).toBe(true)
    }
  })

  it('leads from a line of a script to the file that it is from', () => {
    const lines = DECIDE.plain.source.split('\n')
    const originOf = (code: string) =>
      lines.slice(0, lines.indexOf(code)).findLast(line => line.startsWith('-- '))
    expect(originOf('local function ceil_div(a, b)')).toBe('-- script/prelude.lua')
    expect(originOf('local burst_tolerance = burst * period')).toBe('-- gcra: read')
    expect(originOf('backlog = backlog + cost * period')).toBe('-- gcra: spend')
    expect(originOf("if verb == 'peek' then")).toBe('-- script/decide.lua, after the algorithms')
    expect(originOf("redis.call('SETEX', KEYS[key], life_of(idle_at, now), new_state)")).toBe(
      '-- script/commit.lua',
    )
  })

  it('has no lines that Redis does not run, except those that name a file', () => {
    for (const { plain } of SCRIPTS) {
      const comments = plain.source.split('\n').filter(line => line.startsWith('--'))
      for (const comment of comments) expect(comment).toMatch(/^-- (script\/[a-z]+\.lua|[a-z-]+: [a-z]+)/)
      expect(plain.source.trim()).not.toContain('\n\n')
    }
  })

  it('formats every number that goes to Redis itself', () => {
    // tostring and .. keep 14 digits; a microsecond of today has 16.
    for (const { plain } of SCRIPTS)
      expect(plain.source).not.toMatch(/tostring\(|\.\. *(now|idle_at|keep_ms)\b/)
  })
})

describeOnRedis('the script', start => {
  let redis: TestRedis
  beforeAll(async () => {
    redis = await start()
  })
  afterAll(() => redis?.close())

  it(`says the same on a server without the struct library (SEED=${SEED})`, async () => {
    const withoutStruct = ({ plain }: Script) => {
      const source = plain.source.replace("rawget(_G, 'struct')", 'nil')
      expect(source).not.toBe(plain.source)
      return { source, sha1: sha1(source) }
    }
    await redis.connection.send(['FLUSHALL'])
    const bare = new RedisEngine(redis.connection, withoutStruct)
    const whole = new RedisEngine(redis.connection)
    await forEvery(traffic(30), 20, async scenario => {
      const model = new ModelEngine()
      let requests = 0
      const onBoth = async (asked: TimedEvaluation) => {
        // By turns: what one has written the other reads.
        const actual = await (requests++ % 2 === 0 ? bare : whole).evaluate(asked)
        expect(actual).toEqual(await model.evaluate(asked))
        return actual
      }
      for await (const _ of played(scenario, newCaller(), onBoth));
    })
  })

  it('is known to Redis by its SHA-1', async () => {
    for (const { plain } of SCRIPTS)
      expect(String(await redis.connection.send(['SCRIPT', 'LOAD', plain.source]))).toBe(plain.sha1)
  })
})
