/** Holds what callers saw, and what the store has counted meanwhile, to the policy. */
import { checkedConfig } from '../../src/config/check/check.ts'
import { type CounterOwner, peekCaller } from '../../src/ops/limits.ts'
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
} from './policy.ts'

export interface Judged {
  /** Replies that the store has not decided. */
  degraded: readonly Reply[]
  /** Of all requests, ms. */
  slowest: number
  /** Units above the limits, of all callers. */
  excess: number
  mistakes: readonly string[]
  callers: readonly Caller[]
}

export interface Circumstances {
  mode: Mode
  /** Calls that failed may have been done, though nobody heard of it. */
  arrives: boolean
  /** So many times the store forgot everything. */
  losses?: number
  /** So many units, of all callers together, it may have forgotten. */
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
  let unheard = 0
  let gone = 0
  for (const { counted, replies } of callers) {
    const decided = passed(replies).filter(isDecided).length
    const marked = passed(replies).length - decided
    if (!counted) {
      if (decided > 0) mistakes.push('a key that nobody has made was found good')
      continue
    }
    const most = mostWithoutStore(mode, marked) * Math.max(1, outagesOf(replies, outages))
    if (marked > most) mistakes.push(`${marked} passed without the store, where ${most} may`)
    const over = Math.max(0, passed(replies).length - LIMIT)
    above += over
    if (isForgotten) {
      if (decided > LIMIT * (1 + losses)) mistakes.push(`the store admitted ${decided} of ${LIMIT}`)
      continue
    }
    const spent = await spentBy(lane, counted, mode)
    gone += Math.max(0, decided - spent)
    const undecided = replies.filter(reply => !isDecided(reply))
    // A lost or late reply may have been spent, and what the isolate has admitted in its place is told to the store again.
    const twice = mode === 'closed' ? [] : arrives ? undecided : undecided.filter(isLate)
    const asked = decided + undecided.length + twice.length
    if (spent > asked) mistakes.push(`${spent} are spent, by no more than ${asked} requests`)
    // What an isolate has admitted by itself is told to the store when it is back: with open too, while an outage is suspected.
    unheard += Math.max(0, spent - decided - (mode === 'closed' ? 0 : marked))
    // What was not replicated was spent when the caller was refused.
    if (wasRefusedInVain(replies, spent + unreplicated)) mistakes.push('refused with budget left')
  }
  if (gone > unreplicated) mistakes.push(`${gone} were admitted by the store that are not spent in it`)
  // On a busy machine a call can be late without any fault, and what it spends is spent.
  const late = degraded.filter(isLate).length
  if (!arrives && unheard > late) mistakes.push(`${unheard} spent by calls that never arrived`)
  return { degraded, slowest, excess: above, mistakes, callers }
}

/** Its call may have been done, though the reply was not waited for. */
function isLate({ mark }: Reply): boolean {
  return mark === 'store-timeout' || mark === 'overload'
}

/** When a decision of the store followed others that were made without it. */
function endsOfOutages(replies: readonly Reply[]): readonly number[] {
  const inOrder = replies.toSorted((one, other) => one.at - other.at)
  return inOrder.flatMap((reply, i) =>
    i > 0 && isDecided(reply) && !isDecided(inOrder[i - 1]!) ? reply.at : [],
  )
}

/** In how many outages somebody passed. */
function outagesOf(replies: readonly Reply[], ends: readonly number[]): number {
  const marked = passed(replies).filter(reply => !isDecided(reply))
  return new Set(marked.map(({ at }) => ends.findIndex(end => end > at))).size
}

function wasRefusedInVain(replies: readonly Reply[], spent: number): boolean {
  return spent < LIMIT && replies.some(reply => isDecided(reply) && reply.status === 429)
}

/** As the store has it. */
export async function spentBy(lane: Lane, counted: CounterOwner, mode: Mode): Promise<number> {
  const { standings } = await peekCaller(lane.admin, checked, counted)
  const name = `${mode}-${'consumer' in counted ? 'consumer' : 'address'}`
  return LIMIT - standings.find(({ rule }) => rule.name === name)!.remaining
}

/** How long a slot may take to be free: its ttl, and what a busy machine is late. */
const FREE_WITHIN_MS = SLOT_TTL_MS + LATE_MS

/** All replies have ended, so every slot has to be free, at the latest when its ttl has passed. */
export async function slotsTaken(lane: Lane, callers: readonly Caller[], mode: Mode): Promise<string[]> {
  const until = performance.now() + FREE_WITHIN_MS
  let counted = callers.flatMap(({ counted }) => counted ?? [])
  for (;;) {
    // One after the other: of all places in a scenario there are hundreds.
    const taken: CounterOwner[] = []
    for (const each of counted) if ((await slotsOf(lane, each, mode)) > 0) taken.push(each)
    counted = taken
    if (counted.length === 0) return []
    if (performance.now() > until) return [`${counted.length} callers have slots that ended requests took`]
    await new Promise(resolve => setTimeout(resolve, 50))
  }
}

async function slotsOf(lane: Lane, counted: CounterOwner, mode: Mode): Promise<number> {
  const { standings } = await peekCaller(lane.admin, checked, counted)
  const name = `in-flight-${mode}-${'consumer' in counted ? 'consumer' : 'address'}`
  return AT_ONCE - standings.find(({ rule }) => rule.name === name)!.remaining
}
