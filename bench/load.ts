/** A load generator in a process of its own: sends so many requests over so many connections, and is ready when all are answered. */
import { Agent, get, type IncomingMessage, type OutgoingHttpHeaders } from 'node:http'
import { childSettings, sayReady } from './child.ts'
import { inFlight } from './measure.ts'

export interface LoadSettings {
  url: string
  headers: OutgoingHttpHeaders
  connections: number
  requests: number
}

/** So few change nothing in the sum. */
const MOST_UNDECIDED = 0.02

const { url, headers, connections, requests } = childSettings<LoadSettings>()
// Not fetch, which costs several times as much CPU: two cores are all there is.
const agent = new Agent({ keepAlive: true, maxSockets: connections })

let undecided = 0
await inFlight(connections, requests, async () => {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    get(url, { agent, headers }, resolve).on('error', reject)
  })
  for await (const _ of response);
  if (response.statusCode !== 200 || 'sluice-degraded' in response.headers) undecided += 1
})
// Where the machine stops for a moment, the requests in flight miss the deadline of the store.
if (undecided > MOST_UNDECIDED * requests)
  throw new Error(`${undecided} requests were not decided by the store.`)
agent.destroy()
sayReady({})
