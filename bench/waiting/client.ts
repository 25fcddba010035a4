/** How long calls of `sluicegate/client` take that wait for units in flight of `sluicegate serve`. */
import { fileURLToPath } from 'node:url'
import type { Guardian } from '../../src/node/start/guardian.ts'
import { startChild } from '../child.ts'
import { median } from '../measure.ts'
import { loadAverage } from '../report.ts'
import type { OriginSettings } from '../serve/origin.ts'
import { startServe } from '../serve/server.ts'
import { AT_ONCE } from './client.config.ts'
import type { CallsCommand, CallsResult } from './client-process.ts'

const CONFIG = fileURLToPath(new URL('client.config.ts', import.meta.url))
export const JOB_MS = 500
export const ROUNDS = 5

const SHAPES = [
  { calls: 60, processes: 1, target: 0.9 },
  { calls: 60, processes: 4, target: 0.75 },
  { calls: 300, processes: 1, target: 0.9 },
  { calls: 300, processes: 4, target: 0.75 },
]

export const HEAD = [
  'calls',
  'processes',
  'time, s',
  'used of the ideal',
  'target',
  'refused replies',
  'load average',
]

/** @returns the rows of the table. @throws Error if a call ends with an error or a refusal */
export async function measureClient(
  bed: { guardian: Guardian; directory: string },
  redisUrl: string,
): Promise<string[][]> {
  const settings: OriginSettings = { jobMs: JOB_MS }
  const origin = await startChild<{ url: string }>('serve/origin.ts', settings, bed)
  const env = { ORIGIN_URL: origin.ready.url, REDIS_URL: redisUrl }
  const gateway = await startServe(CONFIG, env, group => bed.guardian.guard({ group }))
  const url = `${gateway.url}/x`

  async function run({ calls, processes }: (typeof SHAPES)[number]) {
    const clients = await Promise.all(
      Array.from({ length: processes }, () => startChild<object>('waiting/client-process.ts', {}, bed)),
    )
    const command: CallsCommand = { url, calls: calls / processes }
    const start = performance.now()
    const results = await Promise.all(clients.map(client => client.send<CallsResult>(command)))
    const ms = performance.now() - start
    await Promise.all(clients.map(client => client.close()))
    return { ms, refused: results.reduce((sum, { refused }) => sum + refused, 0) }
  }

  try {
    // The first request compiles the script.
    await (await fetch(url)).arrayBuffer()
    const rows: string[][] = []
    for (const shape of SHAPES) {
      const runs: Awaited<ReturnType<typeof run>>[] = []
      for (let round = 0; round < ROUNDS; round++) runs.push(await run(shape))
      const { calls, processes, target } = shape
      const ms = median(runs.map(each => each.ms))
      const used = (Math.ceil(calls / AT_ONCE) * JOB_MS) / ms
      rows.push([
        ...[String(calls), String(processes), (ms / 1e3).toFixed(2), `${Math.round(100 * used)} %`],
        `≥ ${100 * target} %: ${used >= target ? 'yes' : 'no'}`,
        String(median(runs.map(({ refused }) => refused))),
        loadAverage(),
      ])
      console.error(rows.at(-1)!.join(' | '))
    }
    return rows
  } finally {
    await gateway.close()
    await origin.close()
  }
}
