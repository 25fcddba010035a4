/** Measures requests a second through `guard` in one Node process, whose handler answers directly, and compares them with PINGs. */

import { createAdminStore } from '../../src/ops/admin-store.ts'
import { createKey } from '../../src/ops/keys.ts'
import { guard } from '../../src/set-ups/guard/guard.ts'
import { inRounds, runConcurrently } from '../measure.ts'
import { type Findings, roundsRow } from '../report.ts'
import { sixRules } from '../rules.ts'
import type { TestBed } from '../test-bed.ts'
import { throughBridge } from '../transport.ts'

const ROUNDS = 2
const REQUESTS = 3000
const AT_ONCE = 16

export async function guardInNode(bed: TestBed): Promise<Findings> {
  const { key } = await createKey(createAdminStore(bed.near), { consumer: 'consumer-of-guard', plan: 'free' })
  const env = { UPSTASH_REDIS_REST_URL: bed.near.url, UPSTASH_REDIS_REST_TOKEN: bed.near.token }
  const config = { plans: ['free'], rules: sixRules('admits all', 'as shipped'), stats: { keep: false } }
  const handler = guard(config, { env, address: () => '198.51.100.7' })((_: Request) => new Response('hello'))
  const decide = async () => {
    const response = await handler(
      new Request('https://api.example.com/hello', { headers: { 'x-api-key': key } }),
    )
    if (response.status !== 200 || response.headers.has('sluice-degraded')) {
      throw new Error(`A request through guard failed: ${response.status}`)
    }
    await response.text()
  }
  const { store } = throughBridge(bed.near)
  const { info, warn } = console
  console.info = console.warn = () => {}
  try {
    const measure = (run: () => Promise<unknown>) => async () => {
      const [startedAt, cpu] = [performance.now(), process.cpuUsage()]
      await runConcurrently(AT_ONCE, REQUESTS, run)
      const { user, system } = process.cpuUsage(cpu)
      return {
        perSecond: (REQUESTS * 1000) / (performance.now() - startedAt),
        cpu: (user + system) / REQUESTS,
      }
    }
    const tasks = { Sluice: measure(decide), PING: measure(() => store.ping()) }
    await inRounds(1, tasks)
    const rounds = await inRounds(ROUNDS, tasks)
    const of = (name: keyof typeof rounds, what: 'perSecond' | 'cpu') =>
      rounds[name].map(round => round[what])
    const what = `CPU of Node per request through guard, ${AT_ONCE} at once, with the client`
    return {
      rows: [
        roundsRow(
          `requests a second through guard, ${AT_ONCE} at once, one Node process with the bridge beside it`,
          ['PING', of('Sluice', 'perSecond'), of('PING', 'perSecond')],
          { unit: '', digits: 0 },
        ),
        roundsRow(what, ['PING', of('Sluice', 'cpu'), of('PING', 'cpu')], { unit: 'µs', digits: 0 }),
      ],
      rounds: [{ title: what, columns: { Sluice: of('Sluice', 'cpu'), PING: of('PING', 'cpu') } }],
    }
  } finally {
    Object.assign(console, { info, warn })
    await handler.close()
  }
}
