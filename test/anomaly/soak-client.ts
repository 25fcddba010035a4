/**
 * A process that asks without end, as many callers of many kinds, and keeps the books: what it sent, what came back, and
 * what should not have. Some of its requests it leaves before the answer.
 */
import { Agent } from 'node:http'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { randomFrom } from '../support/random.ts'
import { type Ask, exchange, type Seen } from './exchange.ts'
import { MODES, mistakeIn, SOAK_PERIOD_MS } from './policy.ts'

export interface SoakOrder {
  url: string
  seed: number
  /** Of consumers that nobody else asks as. */
  keys: readonly string[]
  /** Second and third byte of addresses that nobody else has. */
  network: string
  atOnce: number
}

export interface Books {
  sent: number
  /** Replies by what they say: `200`, `429`, `200 store-timeout`, … */
  replies: Record<string, number>
  /** Left by us. */
  left: number
  /** No reply came, though we waited for it. */
  unanswered: number
  /** What no policy asks for, and how often. */
  mistakes: Record<string, number>
  slowest: number
  /** The most that the store has admitted of one caller's limit in one window. */
  mostInWindow: number
}

/** Requests of one caller before another takes its place; some go on for good. */
const VISITS = 4
const PAUSE_MS = 5

interface Caller {
  ask: Ask
  mode: (typeof MODES)[number]
  isKnown: boolean
  isMadeUp: boolean
  /** Admitted by the store, by window. */
  admitted: Map<number, number>
}

if (process.send) process.once('message', order => void work(order as SoakOrder))

async function work({ url, seed, keys, network, atOnce }: SoakOrder): Promise<void> {
  const random = randomFrom(seed)
  const agent = new Agent({ keepAlive: false })
  const books: Books = {
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
    books.sent += 1
    const path = `/soak/${caller.mode}/x`
    const { isKnown: wasKnown } = caller
    if (random.chance(0.01)) {
      books.left += 1
      await exchange(agent, url + path, { ...caller.ask, leaveAfterMs: random.int(0, 20) }).catch(() => {})
      return
    }
    const askedAt = Date.now()
    const seen = await exchange(agent, url + path, caller.ask).catch(() => undefined)
    if (!seen) {
      books.unanswered += 1
      return
    }
    note(caller, seen, wasKnown, askedAt)
  }

  function note(caller: Caller, seen: Seen, wasKnown: boolean, askedAt: number): void {
    const { status, mark, isBroken } = seen
    add(books.replies, [status, mark, isBroken && 'cut off'].filter(Boolean).join(' '))
    books.slowest = Math.max(books.slowest, seen.ms)
    // The origin fails at times, and says so in its own words, or the gateway does.
    const isOrigins = [500, 502, 504].includes(status) || (status === 503 && seen.type === undefined)
    const asked = { mode: caller.mode, isUnknown: !wasKnown, isForgotten: true }
    const mistake = isOrigins ? undefined : mistakeIn(seen, asked)
    if (mistake) add(books.mistakes, mistake)
    if (mark !== undefined) return
    if (caller.isMadeUp && status !== 401 && status !== 429)
      add(books.mistakes, 'a made-up key was found good')
    if (caller.ask.key !== undefined && (status === 200 || status === 401)) caller.isKnown = status === 200
    if (status !== 200) return
    // It was decided in between: a window counts only where both are the same.
    const window = Math.floor(askedAt / SOAK_PERIOD_MS)
    if (Math.floor(Date.now() / SOAK_PERIOD_MS) !== window) return
    const count = (caller.admitted.get(window) ?? 0) + 1
    caller.admitted.set(window, count)
    books.mostInWindow = Math.max(books.mostInWindow, count)
  }

  async function loop(own: Caller): Promise<void> {
    while (!isOver) {
      const caller = random.chance(0.5) ? own : newcomer()
      for (let i = 0; i < VISITS && !isOver; i++) {
        await visit(caller)
        await new Promise(resolve => setTimeout(resolve, PAUSE_MS))
      }
      for (const window of caller.admitted.keys()) {
        if (window < Math.floor(Date.now() / SOAK_PERIOD_MS) - 1) caller.admitted.delete(window)
      }
    }
  }

  await Promise.all(Array.from({ length: atOnce }, (_, i) => loop(regular(keys[i]!))))
  agent.destroy()
  process.send!(books, undefined, undefined, () => process.disconnect())
}

function add(counts: Record<string, number>, name: string): void {
  counts[name] = (counts[name] ?? 0) + 1
}
