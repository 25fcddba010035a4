/**
 * Sends many requests at once. Runs as a separate process, so that the client does not share an event loop with the bridge, the proxy and
 * the origin. A separate process is not necessary for requests one after the other.
 */
import { Agent, request } from 'node:http'
import { fileURLToPath } from 'node:url'

export const CLIENT = fileURLToPath(import.meta.url)

export interface FloodOrder {
  url: string
  total: number
  atOnce: number
}

/** Number of replies by status, followed by the value of `Sluice-Degraded` if there is one, as in `200 overload`. */
export type FloodReplies = Record<string, number>

if (process.argv[1] === CLIENT) {
  process.once('message', async order => {
    const replies = await flood(order as FloodOrder)
    process.send!(replies, undefined, undefined, () => process.disconnect())
  })
}

export async function flood({ url, total, atOnce }: FloodOrder): Promise<FloodReplies> {
  const agent = new Agent({ keepAlive: true, maxSockets: atOnce })
  const replies: FloodReplies = {}
  let sent = 0
  async function ask(): Promise<void> {
    while (sent < total) {
      sent += 1
      const reply = await send(agent, url)
      replies[reply] = (replies[reply] ?? 0) + 1
    }
  }
  await Promise.all(Array.from({ length: atOnce }, ask))
  agent.destroy()
  return replies
}

function send(agent: Agent, url: string): Promise<string> {
  return new Promise(resolve => {
    request(url, { agent }, response => {
      const mark = response.headers['sluice-degraded']
      response.resume().once('end', () => resolve([response.statusCode, mark].filter(Boolean).join(' ')))
    })
      .once('error', () => resolve('no reply'))
      .end()
  })
}
