/** Test files share their globals (vitest.config.ts), so a stub of a file's last test must not reach the next file. */
import { afterAll, expect, it, vi } from 'vitest'

const { fetch } = globalThis

afterAll(() => {
  expect([globalThis.fetch, process.env.STUBBED_BY_A_TEST, Math.max(1, 2)]).toEqual([fetch, undefined, 2])
})

it('undoes stubs and spies as soon as a test has ended', () => {
  vi.stubGlobal('fetch', () => {})
  vi.stubEnv('STUBBED_BY_A_TEST', 'yes')
  vi.spyOn(Math, 'max').mockReturnValue(0)
  expect([globalThis.fetch, process.env.STUBBED_BY_A_TEST, Math.max(1, 2)]).not.toEqual([fetch, undefined, 2])
})
