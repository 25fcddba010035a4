/**
 * Gives back places in queues (`leaky-bucket`) that calls have given up. The store takes only the last place of a queue back, because the
 * departures of the calls behind another one are fixed. So a place with others behind it is kept here, and given back once the calls
 * behind it have given up, too: together with theirs, if all are calls of this process.
 *
 * A place is sent once, and again only if the store has answered that it was not the last one. Calls can belong to different requests, so
 * this is plain data.
 */
import type { Rule } from '../../config/compile-rule.ts'
import { Lru } from '../../lru.ts'
import type { Verdict } from '../../script/evaluation.ts'
import type { ChangeResult } from '../../script/refund.ts'
import { writtenNumbers } from '../../script/wire.ts'
import type { LimitDecision } from './limiter-shape.ts'

/** The queue of an identity. */
export interface Queue {
  rule: Rule
  key: string
  /** The limit and burst of the override under which its places were taken. */
  written?: string | undefined
}

/** Adjacent places. Times are µs by the clock of the store. */
export interface Place {
  /** When the first one was taken. */
  at: number
  /** How long that call had to wait for its turn, rounded up. */
  wait: number
  units: number
}

/**
 * The places that an admitted call has in queues.
 * @param queues the rules of the limit, with the keys of the identity
 */
export function placesOf(
  { at, costs }: Pick<LimitDecision, 'at' | 'costs'>,
  verdicts: readonly Verdict[],
  queues: readonly Queue[],
): { queue: Queue; place: Place }[] {
  return queues.flatMap(queue => {
    const { tag, name, counting } = queue.rule
    const verdict = counting.isQueue && at > 0 ? verdicts.find(({ rule }) => rule.tag === tag) : undefined
    const units = costs[name] ?? 0
    if (!verdict?.allowed || units === 0) return []
    // Numbers of the call are in the rule.
    const written = queue.rule.ofCall ? undefined : writtenNumbers(verdict.rule, queue.rule)
    return [{ queue: { ...queue, written }, place: { at, wait: verdict.delay, units } }]
  })
}

/** By the latest answer of the store. Times are µs. */
interface KnownQueue {
  /** When the store answered. */
  at: number
  /** When the queue ends without further calls, rounded up. */
  emptyAt: number
  /** Given up, and not given back because others were behind them. */
  places: readonly Place[]
}

/** @param send asks the store to give a place back. It returns undefined if it is unknown whether the store has answered */
export function createGivenUpPlaces(
  send: (queue: Queue, place: Place) => Promise<Pick<ChangeResult, 'at' | 'verdicts'> | undefined>,
): (queue: Queue, place: Place) => Promise<void> {
  const queues = new Lru<KnownQueue>({ size: MAX_QUEUES })

  return async (queue, given) => {
    const { rule, key, written = '' } = queue
    const id = `${rule.tag} ${written} ${key}`
    // An override changes the limit of a queue and not its period.
    const { period, rate } = rule.quota
    const unitLength = (period / rate) * (written ? rule.limit / Number.parseInt(written, 10) : 1)
    const endOf = ({ at, wait, units }: Place) => at + wait + units * unitLength
    for (let place: Place | undefined = given; place; ) {
      const answer = await send(queue, place)
      // Shorter places look the same.
      if (!answer || unitLength < MIN_UNIT_LENGTH) return
      const seen = { at: answer.at, emptyAt: answer.at + answer.verdicts[0]!.resetAfter }
      const known = queues.get(id)
      // Answers can come in another order than the store gave them. But one about a place that was sent again is the latest in any case,
      // even if the clock of the store was set back.
      const latest = known && known.at > seen.at && place === given ? known : seen
      // A last place that the store has not taken back is in another record now. It must not be sent for ever.
      const isLeft = seen.emptyAt - endOf(place) >= ROUNDING
      const places = [...(known?.places ?? []), ...(isLeft ? [place] : [])]
      const { last, others } = takeLast(places, latest.emptyAt, endOf)
      const lasting = others.filter(each => endOf(each) > latest.at).slice(-MAX_PLACES)
      queues.set(id, { ...latest, places: lasting })
      place = last
    }
  }
}

/** Joins the places at the end of a queue to one. @param emptyAt the end of the queue */
function takeLast(places: readonly Place[], emptyAt: number, endOf: (place: Place) => number) {
  let last: Place | undefined
  let others = places
  for (let end = emptyAt; ; ) {
    const next = others.find(place => Math.abs(endOf(place) - end) < ROUNDING)
    if (!next) return { last, others }
    others = others.filter(place => place !== next)
    last = { ...next, units: next.units + (last?.units ?? 0) }
    end = next.at + next.wait
  }
}

/** Times are rounded up by less than this (µs). */
const ROUNDING = 1

const MIN_UNIT_LENGTH = 2 * ROUNDING

/** Bounds of the memory that calls can use: queues, and places in each of them. */
const MAX_QUEUES = 1000
const MAX_PLACES = 1000
