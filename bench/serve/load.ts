/** The process of the client: sends requests over connections that it keeps, and measures how long each reply takes. */
import { Agent, type OutgoingHttpHeaders, request } from 'node:http'
import { handleCommands, reportReady } from '../child.ts'
import { quantile, runConcurrently } from '../measure.ts'

export interface LoadCommand {
  url: string
  method?: string
  headers?: OutgoingHttpHeaders
  body?: string
  /** Any other status is an error. */
  status: number
  connections: number
  requests: number
}

export interface LoadResult {
  perSecond: number
  /** ms */
  p50: number
  p99: number
}

handleCommands<LoadCommand>(async ({ url, method, headers, body, status, connections, requests }) => {
  // Not fetch, which takes several times as much CPU of the shared machine.
  const agent = new Agent({ keepAlive: true, maxSockets: connections })
  const durations: number[] = []
  const startedAt = performance.now()
  await runConcurrently(connections, requests, async () => {
    const sentAt = performance.now()
    await new Promise<void>((resolve, reject) => {
      const sent = request(url, { method: method ?? 'GET', headers: headers ?? {}, agent }, reply => {
        if (reply.statusCode !== status || 'sluice-degraded' in reply.headers)
          reject(new Error(`The status is ${reply.statusCode}, or the store has not decided.`))
        reply.resume().once('end', resolve)
      })
      sent.on('error', reject)
      sent.end(body)
    })
    durations.push(performance.now() - sentAt)
  })
  agent.destroy()
  return {
    perSecond: requests / ((performance.now() - startedAt) / 1e3),
    p50: quantile(durations, 0.5),
    p99: quantile(durations, 0.99),
  } satisfies LoadResult
})
reportReady({})
