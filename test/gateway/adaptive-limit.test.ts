/** An adaptive limit through the whole gateway on Node, by a clock that the tests move. */
import { describe, expect, it, vi } from 'vitest'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import { type App, type TestPlatform, useGateway } from '../support/gateway.ts'
import { PATIENT } from '../support/patience.ts'
import { timersBy } from '../support/quick-time.ts'

const RULE: RuleInput = {
  ...{ name: 'origin', by: 'global', algorithm: 'concurrency', limit: 12 },
  adaptive: { min: 2, initial: 6 },
}
const CONFIG = { rules: [RULE], credentials: { accept: ['anonymous'] } } satisfies Partial<ConfigInput>

describe('an adaptive limit', () => {
  const gateway = useGateway()
  let fleets = 0

  /** @param areEndsReported whether isolates report ends also without another request, when time has passed */
  function fleetOf(config: Pick<ConfigInput, 'rules' | 'credentials' | 'shedding'>, areEndsReported = false) {
    // Each fleet starts a day after the one before it: later than any report from the previous test.
    fleets += 1
    let now = 1_700_000_000_000 + fleets * 86_400_000
    const timers = timersBy(() => now)
    const platform: TestPlatform = {
      clock: { now: () => now },
      reportAt: () => now * 1000,
      ...(areEndsReported && { timer: timers.timer }),
    }
    return {
      apps: [gateway.app(config, platform), gateway.app(config, platform)] as [App, App],
      pass: (ms: number) => {
        now += ms
        timers.ring()
      },
    }
  }

  /** Counts the requests that are admitted at once: their bodies are read only after all were sent. */
  async function admittedAtOnce(app: App): Promise<number> {
    const replies: Response[] = []
    for (let i = 0; i < 14; i++) replies.push(await app('/'))
    const admitted = replies.filter(({ status }) => status === 200)
    for (const reply of admitted) await reply.text()
    // Reports the end of the last body.
    await app('/empty')
    return admitted.length
  }

  it('starts with the initial limit, even with another maximum', async () => {
    const { apps } = fleetOf(CONFIG)
    expect(await admittedAtOnce(apps[0])).toBe(6)
  })

  it('replies with 503 above it, without details', async () => {
    const { apps } = fleetOf(CONFIG)
    const replies = []
    for (let i = 0; i < 7; i++) replies.push(await apps[0]('/'))
    expect(replies[0]!.headers.has('RateLimit')).toBe(false)
    expect(replies[6]!.status).toBe(503)
    expect(await replies[6]!.json()).toMatchObject({ title: 'Temporary Reduced Capacity' })
    // Ends the requests, because an isolate keeps reporting units that it holds.
    for (const reply of replies.slice(0, 6)) await reply.text()
  })

  it.each(['gradient', 'aimd'] as const)(
    'falls for all isolates while the origin fails, not below the minimum, and rises again: %s',
    async method => {
      const rules = [{ ...RULE, adaptive: { min: 2, initial: 6, method } } as RuleInput]
      const { apps, pass } = fleetOf({ ...CONFIG, rules }, true)
      const [one, other] = apps
      async function seconds(count: number, path: string, held: number): Promise<void> {
        for (let i = 0; i < count; i++) {
          const replies: Response[] = []
          for (let j = 0; j < held; j++) replies.push(await one(path))
          for (const reply of replies) await reply.text()
          pass(1000)
        }
      }
      await seconds(8, '/error', 6)
      await other('/empty')
      const low = await admittedAtOnce(other)
      expect(low).toBeLessThan(6)
      expect(low).toBeGreaterThanOrEqual(2)
      await seconds(8, '/', 8)
      await other('/empty')
      // The last endings of the isolate `one` reach the store a moment later.
      await vi.waitFor(async () => expect(await admittedAtOnce(other)).toBeGreaterThan(low), PATIENT)
    },
  )

  it('makes no extra HTTP request', async () => {
    // An end is reported at once if most of the current limit, not of the maximum, is used.
    const { apps, pass } = fleetOf({ ...CONFIG, rules: [{ ...RULE, limit: 1000 } as RuleInput] })
    await (await apps[0]('/')).text()
    pass(1000)
    gateway.store.count()
    for (let i = 0; i < 5; i++) {
      await (await apps[0]('/')).text()
      pass(200)
    }
    expect(gateway.store.count()).toBe(5)
  })

  it('is divided among the traffic classes if it belongs to fleet usage', async () => {
    const shedding: NonNullable<ConfigInput['shedding']> = {
      classes: [{ name: 'critical', match: { methods: ['POST'] } }, { name: 'reads' }],
      fleetUsage: { capacity: 30, reserved: { critical: 0.5 }, adaptive: { initial: 10 } },
    }
    const rules: RuleInput[] = [
      { name: 'hour', by: 'address', algorithm: 'fixed-window', limit: 1000, period: '1h' },
    ]
    const { apps } = fleetOf({ ...CONFIG, rules, shedding })
    expect(await admittedAtOnce(apps[0])).toBe(5)
  })
})
