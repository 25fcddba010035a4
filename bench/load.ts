/** The process of the load generator: sends requests over a number of connections, and is ready when all are answered. */
import { Agent, get, type IncomingMessage, type OutgoingHttpHeaders } from 'node:http'
import { childSettings, reportReady } from './child.ts'
import { runConcurrently } from './measure.ts'

export interface LoadSettings {
  url: string
  headers: OutgoingHttpHeaders
  connections: number
  requests: number
}

/** The share of requests that may be decided without the store: too few to change the result. */
const MAX_UNDECIDED = 0.02

const { url, headers, connections, requests } = childSettings<LoadSettings>()
// Not fetch, which takes several times as much CPU of the shared machine.
const agent = new Agent({ keepAlive: true, maxSockets: connections })

let undecided = 0
await runConcurrently(connections, requests, async () => {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    get(url, { agent, headers }, resolve).on('error', reject)
  })
  for await (const _ of response);
  if (response.statusCode !== 200 || 'sluice-degraded' in response.headers) undecided += 1
})
// If the machine stalls for a moment, the requests in flight miss the deadline of the store.
if (undecided > MAX_UNDECIDED * requests)
  throw new Error(`${undecided} requests were not decided by the store.`)
agent.destroy()
reportReady({})
