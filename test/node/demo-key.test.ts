import { afterEach, describe, expect, it, vi } from 'vitest'
import { mayWriteDemoKey } from '../../src/node/cli/demo-key.ts'

afterEach(() => vi.restoreAllMocks())

describe('npm start writes a demo key', () => {
  it.each(['http://127.0.0.1:8079', 'http://localhost:8079', 'redis://[::1]:6379', 'unix:///run/redis.sock'])(
    'into %s without asking',
    async url => {
      const ask = vi.fn()
      expect(await mayWriteDemoKey(url, { ask })).toBe(true)
      expect(ask).not.toHaveBeenCalled()
    },
  )

  it.each([true, false])('into a store on another machine only if the user agrees: %s', async agrees => {
    const ask = vi.fn(async () => agrees)
    expect(await mayWriteDemoKey('rediss://:very-secret@redis.example.com:6379', { ask })).toBe(agrees)
    expect(ask).toHaveBeenCalledWith(
      'The store at redis.example.com is not on this machine. Write a demo key into it, valid for a day and removed on exit?',
    )
  })

  it('into no store on another machine if there is no terminal', async () => {
    const error = vi.spyOn(console, 'error').mockImplementation(() => {})
    expect(await mayWriteDemoKey('https://db.upstash.io', {})).toBe(false)
    expect(error.mock.calls.flat()).toEqual([
      'The store at db.upstash.io is not on this machine, and there is no terminal to ask on: no demo key is written.',
    ])
  })
})
