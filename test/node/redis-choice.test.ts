import { expect, it } from 'vitest'
import { startGuardian } from '../../src/node/start/guardian.ts'
import { startRedis } from '../../src/node/start/redis.ts'

it('a configured Redis URL is used unchanged, and described without its password', async () => {
  const guardian = startGuardian()
  const redis = await startRedis('rediss://user:very-secret@redis.example:6380/2', {
    guardian,
    directory: '/nowhere',
  })
  expect(redis.url).toContain('very-secret')
  expect(redis.description).toBe('Redis at rediss://user:***@redis.example:6380/2, as configured')
  await guardian.dismiss()
})
