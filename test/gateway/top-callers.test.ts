/** Which name the refusals of a request are counted for, and that they travel with the counters. */
import { expect, it, vi } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { importKey } from '../../src/ops/keys.ts'
import { readTopCallers } from '../../src/ops/top-callers.ts'
import { useGateway } from '../support/gateway.ts'
import { PATIENT } from '../support/patience.ts'
import { describeOnRedis } from '../support/redis.ts'

const OPAQUE = 'an-opaque-key-of-another-system'

const CONFIG = {
  credentials: { accept: ['api-key', 'opaque-key', 'anonymous'], opaqueKeys: {} },
  rules: [
    { name: 'day', by: 'consumer', algorithm: 'fixed-window', limit: 1, period: '300d' },
    { name: 'shadow', by: 'address', algorithm: 'fixed-window', limit: 1, period: '300d', mode: 'shadow' },
    {
      name: 'anonymous',
      by: 'address',
      algorithm: 'fixed-window',
      limit: 1,
      period: '300d',
      match: { authenticated: false },
    },
    { name: 'guesses', by: 'address', on: 'auth-failure', algorithm: 'gcra', limit: 1, period: '300d' },
  ],
} satisfies Partial<ConfigInput>

describeOnRedis('refused callers', (_, kind) => {
  const gateway = useGateway(kind)

  /** Makes requests, and returns the counts of each rule by caller. */
  async function refused(
    stats: ConfigInput['stats'],
    addresses = ['192.0.2.7', '198.51.100.9', '203.0.113.5'],
  ) {
    const wakers: (() => void)[] = []
    const timer = (_: number, wake: () => void) => {
      wakers.push(wake)
      return () => {}
    }
    const app = gateway.app({ ...CONFIG, ...(stats && { stats }) }, { reporting: { timer } })
    const [a, b, c] = addresses
    const acme = await gateway.key('acme')
    await importKey(gateway.admin, { key: OPAQUE }, { consumer: 'beta', mode: 'test' })
    const guess = mintApiKey('mallory')
    for (const [key, address, times] of [
      [acme, a, 4],
      [OPAQUE, b, 3],
      [undefined, c, 3],
      [guess, c, 2],
    ] as const)
      for (let i = 0; i < times; i++) await app('/', { ...(key && { key }), ...(address && { address }) })
    gateway.store.count()
    for (const wake of wakers.splice(0)) wake()
    const { rules } = await vi.waitFor(async () => {
      const read = await readTopCallers(gateway.admin, new Date(Date.now() - 60e3))
      expect(read.rules.length).toBeGreaterThan(0)
      return read
    }, PATIENT)
    // The script may have to be sent first.
    expect(gateway.store.count()).toBeLessThanOrEqual(2)
    return Object.fromEntries(
      rules.map(({ rule, mode, callers }) => [
        `${rule} ${mode}`,
        Object.fromEntries(
          callers.map(({ name, callerMode, atMost }) => [
            callerMode ? `${name} (${callerMode})` : name,
            atMost,
          ]),
        ),
      ]),
    )
  }

  it('are verified consumers with the mode of their keys, also those of opaque keys, and no addresses', async () => {
    expect(await refused({})).toEqual({
      'day enforce': { acme: 3, 'beta (test)': 2 },
      'shadow shadow': { acme: 3, 'beta (test)': 2, '-': 2 },
      'anonymous enforce': { '-': 2 },
      'guesses enforce': { '-': 1 },
    })
  })

  it('are networks instead of addresses, if the config says so', async () => {
    expect(
      await refused({ topCallers: 'networks' }, ['192.0.2.7', '198.51.100.9', '2001:db8:1:2::3']),
    ).toEqual({
      'day enforce': { acme: 3, 'beta (test)': 2 },
      'shadow shadow': { acme: 3, 'beta (test)': 2, '2001:db8:1::/48': 2 },
      'anonymous enforce': { '2001:db8:1::/48': 2 },
      'guesses enforce': { '2001:db8:1::/48': 1 },
    })
  })
})
