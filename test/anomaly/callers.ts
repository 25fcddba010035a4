/** Who asks in a scenario, and what each of them saw. No caller is in two scenarios. */
import { mintApiKey } from '../../src/credentials/api-key.ts'
import type { CounterOwner } from '../../src/ops/limits.ts'
import type { Seen } from './exchange.ts'
import type { Lane } from './lane.ts'
import type { Mode } from './policy.ts'

export interface Caller {
  key?: string
  address: string
  /** Whose counter it is; a stranger, whose key looks good and nobody has made, has none. */
  counted?: CounterOwner
  /** A decision of the store has let its key pass: this isolate knows it. */
  isKnown: boolean
  replies: Reply[]
}

export interface Reply extends Seen {
  /** What `isKnown` was when it was asked. */
  wasKnown: boolean
  /** When it was there, by performance.now(). */
  at: number
}

export async function consumerOf(lane: Lane): Promise<Caller> {
  const consumer = lane.name()
  return { ...nobody(lane), key: await lane.key(consumer), counted: { consumer } }
}

/** Without a credential. */
export function anonymous(lane: Lane): Caller {
  const address = lane.address()
  return { ...nobody(lane), address, counted: { address }, isKnown: true }
}

export function stranger(lane: Lane): Caller {
  return { ...nobody(lane), key: mintApiKey(lane.name()) }
}

const nobody = (lane: Lane): Caller => ({ address: lane.address(), isKnown: false, replies: [] })

export async function askAs(lane: Lane, caller: Caller, mode: Mode): Promise<Reply> {
  const { isKnown: wasKnown, key, address } = caller
  const seen = await lane.ask(`/${mode}/x`, { address, ...(key !== undefined && { key }) })
  const reply = { ...seen, wasKnown, at: performance.now() }
  caller.replies.push(reply)
  if (caller.key !== undefined && isDecided(seen) && seen.status !== 429) caller.isKnown = seen.status === 200
  return reply
}

/** By the store, and not for want of it. */
export const isDecided = ({ mark }: Seen) => mark === undefined

export const passed = (replies: readonly Reply[]) => replies.filter(({ status }) => status === 200)

/** On a busy machine the store can be late by itself: then it is tried anew, as somebody else. */
export async function undisturbed(attempt: () => Promise<Caller>): Promise<Caller> {
  for (let more = 5; ; more--) {
    const caller = await attempt()
    if (more === 0 || caller.replies.every(isDecided)) return caller
  }
}
