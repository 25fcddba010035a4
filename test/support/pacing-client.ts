/** Calls an API with the client of `sluicegate/client`, as fast as that lets it. Runs as a process of its own. */
import { fileURLToPath } from 'node:url'
import { createClient } from '../../src/client/index.ts'
import { startLatenessMeter } from './lateness.ts'

export const PACING_CLIENT = fileURLToPath(import.meta.url)

export interface PacingOrder {
  url: string
  /** Calls at the same time. */
  atOnce: number
  ms: number
}

export interface PacingReport {
  /** How many replies had each status, those included that the client has repeated. */
  replies: Record<string, number>
  /** For how long the machine did not let this process run (ms). */
  lateMs: number
}

if (process.argv[1] === PACING_CLIENT) {
  process.on('message', async order => process.send!(await call(order as PacingOrder)))
  process.send!('ready')
}

async function call({ url, atOnce, ms }: PacingOrder): Promise<PacingReport> {
  const lateness = startLatenessMeter()
  const end = performance.now() + ms
  const replies: PacingReport['replies'] = {}
  const get = createClient({
    fetch: (async (...args: Parameters<typeof fetch>) => {
      const response = await fetch(...args)
      if (performance.now() < end) replies[response.status] = (replies[response.status] ?? 0) + 1
      return response
    }) as typeof fetch,
  })
  const work = async () => {
    while (performance.now() < end) await (await get(url)).arrayBuffer()
  }
  await Promise.all(Array.from({ length: atOnce }, work))
  lateness.stop()
  return { replies, lateMs: lateness.total() }
}
