/** Scripts that are written with their digests. Redis would not find them by a wrong digest, and each call would send the text again. */
import { expect, it } from 'vitest'
import { keepScript } from '../../src/limiter/reservations/jobs.ts'
import { listScript } from '../../src/script/pause.ts'
import { sha1 } from '../../src/sha1.ts'

it.each([
  ['keepScript', keepScript],
  ['listScript', listScript],
])('has the digest of its text: %s', (_, script) => {
  for (const { source, sha1: digest } of Object.values(script())) expect(digest).toBe(sha1(source))
})
