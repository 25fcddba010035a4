/** Checks the replies of callers, and the counters of the store, against the fallback. */
import { checkedConfig } from '../../src/config/check/check.ts'
import type { CallerIdentity } from '../../src/ops/caller-identity.ts'
import { peekCaller } from '../../src/ops/limits.ts'
import config from './anomaly.config.ts'
import { type Caller, isDecided, passed, type Reply } from './callers.ts'
import type { Lane } from './lane.ts'
import {
  AT_ONCE,
  DEADLINE_MS,
  LATE_MS,
  LIMIT,
  type Mode,
  mistakeIn,
  mostWithoutStore,
  SLOT_TTL_MS,
} from './modes.ts'

export interface Judged {
  /** Replies that the store has not decided. */
  degraded: readonly Reply[]
  /** The longest time of a reply (ms). */
  slowest: number
  /** Admitted units above the limits, of all callers. */
  excess: number
  mistakes: readonly string[]
  callers: readonly Caller[]
}

export interface Circumstances {
  mode: Mode
  /** Calls that failed may have been executed. */
  arrives: boolean
  /** How many times the store has lost all data. */
  losses?: number
  /** How many units of all callers together the store may have lost. */
  unreplicated?: number
}

const checked = checkedConfig(config)

export async function judge(
  lane: Lane,
  callers: readonly Caller[],
  { mode, arrives, losses = 0, unreplicated = 0 }: Circumstances,
): Promise<Judged> {
  const all = callers.flatMap(({ replies }) => replies)
  const degraded = all.filter(reply => !isDecided(reply))
  const slowest = Math.max(0, ...all.map(({ ms }) => ms))
  const isForgotten = losses > 0
  const mistakes = all.flatMap(
    reply => mistakeIn(reply, { mode, isUnknown: !reply.wasKnown, isForgotten }) ?? [],
  )
  if (slowest > DEADLINE_MS + LATE_MS) mistakes.push(`a reply took ${Math.round(slowest)} ms`)

  const outages = endsOfOutages(all)
  let above = 0
  let unreported = 0
  let lost = 0
  for (const { owner, replies } of callers) {
    const decided = passed(replies).filter(isDecided).length
    const marked = passed(replies).length - decided
    if (!owner) {
      if (decided > 0) mistakes.push('a key that is not in the store was accepted')
      continue
    }
    const mostMarked = mostWithoutStore(mode, marked) * Math.max(1, outagesOf(replies, outages))
    if (marked > mostMarked)
      mistakes.push(`${marked} passed without the store, but at most ${mostMarked} may`)
    const over = Math.max(0, passed(replies).length - LIMIT)
    above += over
    if (isForgotten) {
      if (decided > LIMIT * (1 + losses)) mistakes.push(`the store admitted ${decided} of ${LIMIT}`)
      continue
    }
    const spent = await spentBy(lane, owner, mode)
    lost += Math.max(0, decided - spent)
    const undecided = replies.filter(reply => !isDecided(reply))
    // A call whose reply was lost or late may have spent a unit. If the isolate has admitted the request, it reports another unit later.
    const countedTwice = mode === 'closed' ? [] : arrives ? undecided : undecided.filter(isLate)
    const most = decided + undecided.length + countedTwice.length
    if (spent > most) mistakes.push(`${spent} are spent, by at most ${most} requests`)
    // When the store is back, the isolate reports the requests that it has admitted itself. With `open`, it reports only those that it has
    // admitted while no outage was confirmed.
    unreported += Math.max(0, spent - decided - (mode === 'closed' ? 0 : marked))
    // Units that were not replicated had been spent when the caller was refused.
    if (wasRefusedWithBudget(replies, spent + unreplicated)) mistakes.push('refused with budget left')
  }
  if (lost > unreplicated) mistakes.push(`${lost} were admitted by the store that are not spent in it`)
  // On a busy machine, a call can be late without any fault, and still spend a unit.
  const late = degraded.filter(isLate).length
  if (!arrives && unreported > late) mistakes.push(`${unreported} spent by calls that never arrived`)
  return { degraded, slowest, excess: above, mistakes, callers }
}

/** Whether the isolate gave up waiting for the store. The call may have been executed nevertheless. */
function isLate({ mark }: Reply): boolean {
  return mark === 'store-timeout' || mark === 'overload'
}

/** The times at which the store decided again after decisions without it. */
function endsOfOutages(replies: readonly Reply[]): readonly number[] {
  const inOrder = replies.toSorted((one, other) => one.at - other.at)
  return inOrder.flatMap((reply, i) =>
    i > 0 && isDecided(reply) && !isDecided(inOrder[i - 1]!) ? reply.at : [],
  )
}

/** The number of outages in which one of these requests passed. */
function outagesOf(replies: readonly Reply[], ends: readonly number[]): number {
  const marked = passed(replies).filter(reply => !isDecided(reply))
  return new Set(marked.map(({ at }) => ends.findIndex(end => end > at))).size
}

function wasRefusedWithBudget(replies: readonly Reply[], spent: number): boolean {
  return spent < LIMIT && replies.some(reply => isDecided(reply) && reply.status === 429)
}

/** The units that a caller has spent according to the store. */
export async function spentBy(lane: Lane, owner: CallerIdentity, mode: Mode): Promise<number> {
  const { standings } = await peekCaller(lane.admin, checked, owner)
  const name = `${mode}-${'consumer' in owner ? 'consumer' : 'address'}`
  return LIMIT - standings.find(({ rule }) => rule.name === name)!.remaining
}

/** How long it may take until units in flight are free: the ttl, and the delay of a busy machine. */
const FREE_WITHIN_MS = SLOT_TTL_MS + LATE_MS

/** Waits until no units are in flight. All replies have ended, so all units must be free when the ttl has passed. @returns mistakes */
export async function unitsStillHeld(lane: Lane, callers: readonly Caller[], mode: Mode): Promise<string[]> {
  const until = performance.now() + FREE_WITHIN_MS
  let owners = callers.flatMap(({ owner }) => (owner ? [owner] : []))
  for (;;) {
    // One after the other, because all scenarios of a fault together have hundreds of callers.
    const holding: CallerIdentity[] = []
    for (const owner of owners) if ((await unitsInFlight(lane, owner, mode)) > 0) holding.push(owner)
    owners = holding
    if (owners.length === 0) return []
    if (performance.now() > until) return [`${owners.length} callers still hold units of ended requests`]
    await new Promise(resolve => setTimeout(resolve, 50))
  }
}

async function unitsInFlight(lane: Lane, owner: CallerIdentity, mode: Mode): Promise<number> {
  const { standings } = await peekCaller(lane.admin, checked, owner)
  const name = `in-flight-${mode}-${'consumer' in owner ? 'consumer' : 'address'}`
  return AT_ONCE - standings.find(({ rule }) => rule.name === name)!.remaining
}
