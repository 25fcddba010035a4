/** The callers of a scenario, with their replies. No caller takes part in two scenarios. */
import { mintApiKey } from '../../src/credentials/api-key.ts'
import type { CallerIdentity } from '../../src/ops/caller-identity.ts'
import type { Observed } from './exchange.ts'
import type { Lane } from './lane.ts'
import type { Mode } from './modes.ts'

export interface Caller {
  key?: string
  address: string
  /** The owner of its counters. Absent: its key is not in the store. */
  owner?: CallerIdentity
  /** Whether a decision of the store has admitted its key, so that the isolate knows the key. */
  isKnown: boolean
  /** Where it sends its requests. Absent: to the path of the mode. */
  path?: string
  replies: Reply[]
}

export interface Reply extends Observed {
  /** The value of `isKnown` at the time of the request. */
  wasKnown: boolean
  /** Time of the reply, by performance.now(). */
  at: number
}

export async function consumerOf(lane: Lane): Promise<Caller> {
  const consumer = lane.name()
  return { ...newCaller(lane), key: await lane.key(consumer), owner: { consumer } }
}

/** A consumer whose key is signed: the isolate lets it pass without the store, although it has never seen the key. */
export async function signedConsumerOf(lane: Lane): Promise<Caller> {
  const consumer = lane.name()
  return { ...newCaller(lane), key: await lane.signedKey(consumer), owner: { consumer }, isKnown: true }
}

/** A caller whose signed key has a wrong signature: it never passes, and makes no trip. */
export async function forgerOf(lane: Lane): Promise<Caller> {
  const key = await lane.signedKey(lane.name())
  return { ...newCaller(lane), key: key.slice(0, -1) + (key.endsWith('x') ? 'y' : 'x') }
}

/** A caller without a credential. */
export function anonymous(lane: Lane): Caller {
  const address = lane.address()
  return { ...newCaller(lane), address, owner: { address }, isKnown: true }
}

/** A caller with a well-formed key that is not in the store. */
export function withUnknownKey(lane: Lane): Caller {
  return { ...newCaller(lane), key: mintApiKey(lane.name()) }
}

const newCaller = (lane: Lane): Caller => ({ address: lane.address(), isKnown: false, replies: [] })

/** Sends one request of a caller. */
export async function askAs(
  lane: Lane,
  caller: Caller,
  mode: Mode,
  path = caller.path ?? `/${mode}/x`,
): Promise<Reply> {
  const { isKnown: wasKnown, key, address } = caller
  const observed = await lane.ask(path, { address, ...(key !== undefined && { key }) })
  const reply = { ...observed, wasKnown, at: performance.now() }
  caller.replies.push(reply)
  if (caller.key !== undefined && isDecided(observed) && observed.status !== 429)
    caller.isKnown = observed.status === 200
  return reply
}

/** Whether the store has decided the request. */
export const isDecided = ({ mark }: Observed) => mark === undefined

export const passed = (replies: readonly Reply[]) => replies.filter(({ status }) => status === 200)

/** Repeats an attempt with a new caller if the store was late. On a busy machine, this can happen without a fault. */
export async function undisturbed(attempt: () => Promise<Caller>): Promise<Caller> {
  for (let more = 5; ; more--) {
    const caller = await attempt()
    if (more === 0 || caller.replies.every(isDecided)) return caller
  }
}
