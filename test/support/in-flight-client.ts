/** Makes many calls at once with the client of `sluicegate/client`. Runs as a process of its own. */
import { fileURLToPath } from 'node:url'
import { createClient } from '../../src/client/index.ts'

export const IN_FLIGHT_CLIENT = fileURLToPath(import.meta.url)

export interface InFlightOrder {
  url: string
  calls: number
}

/** How many calls ended with each status or error, and how many replies were refusals that the client has repeated. */
export interface InFlightReport {
  outcomes: Record<string, number>
  refused: number
}

if (process.argv[1] === IN_FLIGHT_CLIENT) {
  process.on('message', async order => process.send!(await callAtOnce(order as InFlightOrder)))
  process.send!('ready')
}

export async function callAtOnce({ url, calls }: InFlightOrder): Promise<InFlightReport> {
  const report: InFlightReport = { outcomes: {}, refused: 0 }
  const get = createClient({
    async fetch(...args) {
      const response = await fetch(...args)
      if (response.status === 429) report.refused += 1
      return response
    },
  })
  const call = async () => {
    const outcome = await get(url).then(
      async response => {
        await response.arrayBuffer()
        return response.status
      },
      (error: Error) => error.name,
    )
    report.outcomes[outcome] = (report.outcomes[outcome] ?? 0) + 1
  }
  await Promise.all(Array.from({ length: calls }, call))
  return report
}
