/**
 * Measures a whole request through workerd: client → Worker → bridge → Redis, and then → origin and back. Compares it with the
 * minimum (ping-worker.ts): the same path, client and proxy code, with a PING instead of the decision. So the ratio shows only what
 * authentication, six limits, routing and headers add.
 */
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { startWorker } from '../../src/node/start/worker.ts'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { createKey } from '../../src/ops/keys.ts'
import { startBenchWorker } from '../child.ts'
import { inRounds, measureTimes, median, runConcurrently } from '../measure.ts'
import { type Findings, latencyRow, type Rounds, type Row } from '../report.ts'
import type { Rest, TestBed } from '../test-bed.ts'

const CONFIG_FILE = fileURLToPath(new URL('../worker-config.ts', import.meta.url))
const WARM_UP = 600
const CONSUMER = 'consumer-of-worker'

const DISTANCES = [
  { what: '0 ms away', place: 'near', rounds: 2, requests: 200, target: 1.25 },
  { what: '20 ms away', place: 'far', rounds: 2, requests: 40, target: 1.25 },
] as const

export async function workerLatency(bed: TestBed): Promise<Findings> {
  const rows: Row[] = []
  const all: Rounds[] = []
  const { key: apiKey } = await createKey(createAdminStore(bed.near), { consumer: CONSUMER, plan: 'free' })

  for (const { what: distance, place, rounds, requests, target } of DISTANCES) {
    const samples = await throughWorkerd(bed, bed[place], apiKey, { rounds, requests })
    const medians = { PING: samples.PING.map(median), Sluice: samples.Sluice.map(median) }
    const what = `request p50 / p99 through workerd, bridge ${distance}, proxied`
    rows.push(latencyRow(what, ['PING', samples.Sluice, samples.PING], target))
    all.push({ title: what, columns: medians })
  }
  return { rows, rounds: all }
}

async function throughWorkerd(
  bed: TestBed,
  { url, token }: Rest,
  apiKey: string,
  { rounds, requests }: { rounds: number; requests: number },
): Promise<Record<'PING' | 'Sluice', number[][]>> {
  const { guardian, directory } = bed
  const bindings = { UPSTASH_REDIS_REST_URL: url, UPSTASH_REDIS_REST_TOKEN: token, ORIGIN_URL: bed.origin }
  const sluice = await startWorker({
    guardian,
    directory: join(directory, 'w'),
    host: '127.0.0.1',
    port: 0,
    watch: false,
    isBare: true,
    bindings,
    configFile: CONFIG_FILE,
  })
  const ping = await startBenchWorker({ entry: 'ping-worker.ts', bindings }, bed)
  try {
    const visit = (worker: string) => async () => {
      const response = await fetch(`${worker}/hello`, { headers: { 'x-api-key': apiKey } })
      await response.text()
      if (response.status !== 200 || response.headers.has('sluice-degraded')) {
        throw new Error(`A request through workerd failed: ${response.status}`)
      }
    }
    const visits = { PING: visit(ping.ready.url), Sluice: visit(sluice.url) }
    await runConcurrently(10, WARM_UP, visits.PING)
    await runConcurrently(10, WARM_UP, visits.Sluice)
    return await inRounds(rounds, {
      PING: () => measureTimes(requests, visits.PING),
      Sluice: () => measureTimes(requests, visits.Sluice),
    })
  } finally {
    await ping.close()
    await sluice.close()
  }
}
