/**
 * A process that holds streams through one Worker, and asks another Worker for a second stream of the same addresses, of which each may
 * have one.
 */
import { Agent, type ClientRequest, request } from 'node:http'
import { runConcurrently } from '../../bench/measure.ts'
import { randomFrom } from '../support/random.ts'
import { exchange } from './exchange.ts'

export interface StreamOrder {
  /** The Worker of the streams. */
  url: string
  /** The other Worker. */
  otherUrl: string
  streams: number
  seed: number
}

export interface StreamCounts {
  /** Streams that ended before the order was over. */
  ended: number
  /** The requests for a second stream of an address. */
  asked: Asked[]
  /** Admitted requests of addresses without a stream. */
  free: number
}

export interface Asked {
  address: string
  status: number
  /** When it was sent, and when its reply arrived (ms since the epoch). */
  sentAt: number
  repliedAt: number
}

const OPENED_AT_ONCE = 50
const PAUSE_MS = 10
/** The share of requests from addresses that have no stream, to show that the other Worker admits these. */
const FREE_SHARE = 0.05

const addressOf = (i: number) => `10.200.${(i >> 8) & 255}.${i & 255}`

if (process.send) process.once('message', order => void work(order as StreamOrder))

/** Sends 'open' when all streams are open, and the counts after the next message. */
async function work({ url, otherUrl, streams, seed }: StreamOrder): Promise<void> {
  const random = randomFrom(seed)
  const agent = new Agent({ keepAlive: false })
  const counts: StreamCounts = { ended: 0, asked: [], free: 0 }
  let isOver = false
  process.once('message', () => {
    isOver = true
  })
  const open: ClientRequest[] = []
  await runConcurrently(OPENED_AT_ONCE, streams, async i => {
    // On a busy machine the store can seem slow, and the rule then refuses.
    let stream: ClientRequest | undefined
    while (!stream && !isOver) stream = await begin(i)
    if (stream) open.push(stream)
  })
  process.send!('open')

  function begin(i: number): Promise<ClientRequest | undefined> {
    const headers = { 'cf-connecting-ip': addressOf(i) }
    return new Promise(resolve => {
      const outgoing = request(`${url}/stream/endless`, { agent, headers }, response => {
        response.resume()
        if (response.statusCode !== 200) {
          resolve(undefined)
          return
        }
        response.on('error', () => {})
        response.once('close', () => {
          if (!isOver) counts.ended += 1
        })
        resolve(outgoing)
      })
      outgoing.on('error', () => resolve(undefined))
      outgoing.end()
    })
  }

  for (let i = 0; !isOver; i++) {
    const isFree = random.chance(FREE_SHARE)
    const address = isFree ? addressOf(streams + i) : addressOf(random.int(0, streams - 1))
    const sentAt = Date.now()
    const observed = await exchange(agent, `${otherUrl}/stream/short`, { address }).catch(() => undefined)
    if (observed?.status === 200 && isFree) counts.free += 1
    if (observed && !isFree)
      counts.asked.push({ address, status: observed.status, sentAt, repliedAt: Date.now() })
    await new Promise(resolve => setTimeout(resolve, PAUSE_MS))
  }
  for (const stream of open) stream.destroy()
  agent.destroy()
  process.send!(counts, undefined, undefined, () => process.disconnect())
}
