/** The process that sends one command to a bridge again and again, over a number of connections. */
import { Agent, type IncomingMessage, request } from 'node:http'
import { childSettings, handleCommands, reportReady } from './child.ts'
import { runConcurrently } from './measure.ts'

export interface RestLoadSettings {
  url: string
  token: string
  /** JSON */
  body: string
}

/** Answered with the duration of each request (ms). */
export interface RestLoad {
  connections: number
  requests: number
}

const { url, token, body } = childSettings<RestLoadSettings>()
const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
const agent = new Agent({ keepAlive: true })

async function send(): Promise<number> {
  const startedAt = performance.now()
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    request(url, { method: 'POST', agent, headers }, resolve).on('error', reject).end(body)
  })
  for await (const _ of response);
  if (response.statusCode !== 200) throw new Error(`The bridge has answered ${response.statusCode}.`)
  return performance.now() - startedAt
}

handleCommands<RestLoad>(async ({ connections, requests }) => {
  const durations: number[] = []
  await runConcurrently(connections, requests, async () => durations.push(await send()))
  return durations
})
reportReady({}, async () => agent.destroy())
