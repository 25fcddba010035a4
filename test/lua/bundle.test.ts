import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { KEY_LOCKING_SCRIPT, PLAIN_SCRIPT } from '../../src/lua/bundle.generated.ts'
import { bundleLua } from '../../src/node/bundle-lua.ts'
import { describeOnRedis, type TestRedis } from '../support/redis.ts'

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

  it('is known to Redis by its SHA-1', async () => {
    expect(String(await redis.connection.send(['SCRIPT', 'LOAD', PLAIN_SCRIPT.source]))).toBe(
      PLAIN_SCRIPT.sha1,
    )
  })
})
