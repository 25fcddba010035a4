/**
 * A process that sends requests continuously, from many kinds of callers, and counts requests, replies and mistakes. It leaves some
 * requests before their reply.
 */
import { Agent } from 'node:http'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { randomFrom } from '../support/random.ts'
import { type Ask, exchange, type Observed } from './exchange.ts'
import { MODES, mistakeIn, SOAK_PERIOD_MS } from './modes.ts'

export interface SoakOrder {
  url: string
  seed: number
  /** Keys of consumers that no other process uses. */
  keys: readonly string[]
  /** The second byte of the process's addresses. */
  network: string
  atOnce: number
  /** Set if callers have leases: how many requests each sends in a row, without a pause, and the period of its limit. */
  leases?: { visits: number; periodMs: number }
}

export interface SoakCounts {
  sent: number
  /** Replies by status and mark: `200`, `429`, `200 store-timeout`, … */
  replies: Record<string, number>
  /** Requests that this client has left. */
  left: number
  /** Requests without a reply that the client has not left. */
  unanswered: number
  /** Replies that the fallback does not permit, by message. */
  mistakes: Record<string, number>
  slowest: number
  /** The most that the store has admitted of one caller's limit in one window. */
  mostInWindow: number
}

/** Requests of one caller in a row. */
const VISITS = 4
const PAUSE_MS = 5

interface Caller {
  ask: Ask
  mode: (typeof MODES)[number]
  isKnown: boolean
  isMadeUp: boolean
  /** Requests that the store has admitted, by window. */
  admitted: Map<number, number>
}

if (process.send) process.once('message', order => void work(order as SoakOrder))

async function work({ url, seed, keys, network, atOnce, leases }: SoakOrder): Promise<void> {
  const random = randomFrom(seed)
  const periodMs = leases?.periodMs ?? SOAK_PERIOD_MS
  const agent = new Agent({ keepAlive: false })
  const counts: SoakCounts = {
    ...{ sent: 0, left: 0, unanswered: 0, slowest: 0, mostInWindow: 0 },
    replies: {},
    mistakes: {},
  }
  let isOver = false
  let addresses = 0
  process.once('message', () => {
    isOver = true
  })

  const newcomer = (): Caller => {
    addresses += 1
    const address = `10.${network}.${(addresses >> 8) & 255}.${addresses & 255}`
    const isMadeUp = random.chance(0.3)
    const ask = { address, ...(isMadeUp && { key: mintApiKey(`made-up-${network}-${addresses}`) }) }
    return { ask, mode: random.pick(MODES), isKnown: !isMadeUp, isMadeUp, admitted: new Map() }
  }
  const regular = (key: string): Caller => ({
    ask: { address: `10.${network}.0.0`, key },
    mode: random.pick(MODES),
    isKnown: false,
    isMadeUp: false,
    admitted: new Map(),
  })

  async function visit(caller: Caller): Promise<void> {
    counts.sent += 1
    const path = `/soak/${caller.mode}/x`
    const { isKnown: wasKnown } = caller
    if (random.chance(0.01)) {
      counts.left += 1
      await exchange(agent, url + path, { ...caller.ask, leaveAfterMs: random.int(0, 20) }).catch(() => {})
      return
    }
    const sentAt = Date.now()
    const observed = await exchange(agent, url + path, caller.ask).catch(() => undefined)
    if (!observed) {
      counts.unanswered += 1
      return
    }
    note(caller, observed, wasKnown, sentAt)
  }

  function note(caller: Caller, observed: Observed, wasKnown: boolean, sentAt: number): void {
    const { status, mark, isBroken } = observed
    add(counts.replies, [status, mark, isBroken && 'cut off'].filter(Boolean).join(' '))
    counts.slowest = Math.max(counts.slowest, observed.ms)
    // Errors of the origin, from the origin itself or from the gateway.
    const isOriginError = [500, 502, 504].includes(status) || (status === 503 && observed.type === undefined)
    const situation = { mode: caller.mode, isUnknown: !wasKnown, isForgotten: true }
    const mistake = isOriginError ? undefined : mistakeIn(observed, situation)
    if (mistake) add(counts.mistakes, mistake)
    if (mark !== undefined) return
    if (caller.isMadeUp && status !== 401 && status !== 429)
      add(counts.mistakes, 'a made-up key was accepted')
    if (caller.ask.key !== undefined && (status === 200 || status === 401)) caller.isKnown = status === 200
    if (status !== 200) return
    // The decision was between sending and reply. It is counted only if both are in the same window.
    const window = Math.floor(sentAt / periodMs)
    if (Math.floor(Date.now() / periodMs) !== window) return
    const count = (caller.admitted.get(window) ?? 0) + 1
    caller.admitted.set(window, count)
    counts.mostInWindow = Math.max(counts.mostInWindow, count)
  }

  async function loop(own: Caller): Promise<void> {
    while (!isOver) {
      const caller = leases || random.chance(0.5) ? own : newcomer()
      for (let i = 0; i < (leases?.visits ?? VISITS) && !isOver; i++) {
        await visit(caller)
        if (!leases) await new Promise(resolve => setTimeout(resolve, PAUSE_MS))
      }
      if (leases) await new Promise(resolve => setTimeout(resolve, random.int(0, 500)))
      for (const window of caller.admitted.keys()) {
        if (window < Math.floor(Date.now() / periodMs) - 1) caller.admitted.delete(window)
      }
    }
  }

  await Promise.all(Array.from({ length: atOnce }, (_, i) => loop(regular(keys[i]!))))
  agent.destroy()
  process.send!(counts, undefined, undefined, () => process.disconnect())
}

function add(counts: Record<string, number>, name: string): void {
  counts[name] = (counts[name] ?? 0) + 1
}
