/**
 * The units of requests in flight that this isolate holds, by identity and rule. Plain bookkeeping, without I/O and timers.
 * docs/internals/concurrency.md describes the messages to the store, and proves what they guarantee.
 *
 * A request takes a permit before it is decided. The permit is resolved once: as admitted, as refused, or as lost if the action of
 * the store is unknown. After a lost permit the isolate begins a new epoch: its messages contain everything that the isolate may hold,
 * and the store drops the rest.
 *
 * A platform can end a request without running any more of its code. So each request renews its permit. A permit that is not renewed
 * for the `ttl` of its rule is given up. But if the whole isolate has not run for that long, its requests have had no chance to do so. So
 * no permit is given up just after a pause: the isolate holds them again, and those of ended requests are given up later.
 */
import type { Holding } from '../../algorithms/algorithm.ts'
import { MAX_UNITS } from '../../algorithms/concurrency.ts'
import { randomName } from '../../base62.ts'
import { type Place, Queue } from '../../queue.ts'
import type { BoundRule } from '../../script/evaluation.ts'
import type { Message } from '../../script/sync.ts'
import { isConsumerKnown, withConsumer } from '../../store/keys.ts'

/** The result of a permit. */
export type PermitResult =
  /** The store has counted it. */
  | 'admitted'
  /** The store has not counted it. */
  | 'refused'
  /** The store may have counted it. */
  | 'lost'

/** The units in flight that one request takes under one rule. */
export interface Permit {
  readonly rule: BoundRule
  /** The units that count for it. 0: the store refuses it for sure, so it counts only if the isolate admits it without the store. */
  units: number
  /** The message about the isolate's units; it travels to the store with the request. */
  readonly holding: Holding
  readonly held: HeldUnits
  state: 'pending' | 'in flight' | 'over'
  /** When its request was last known to be alive (ms). */
  aliveAt: number
}

/** The units that the isolate holds of one identity under one rule. */
interface HeldUnits {
  /** The key; the name of the holder, if only the store knew the consumer when the request came. */
  readonly mapKey: string
  key: string
  holder: string
  /** Whether the holder is the isolate. Else the holder is a single request. */
  readonly isHeldByIsolate: boolean
  /** After this time without a message, the store drops the units (µs). */
  readonly ttl: number
  epoch: number
  /** When the epoch began (ms). */
  epochStartedAt: number
  started: number
  ended: number
  /** Units of permits of this epoch that are not resolved. If the store admits them, it adds them to `started`. */
  pending: number
  /** Units of permits of earlier epochs that are not resolved. The store may have admitted them, so they are in `started`. */
  unresolved: number
  /** Units that are in flight for sure. */
  inFlight: number
  /** The last message that the store has confirmed, and when (ms). */
  confirmed: { epoch: number; ended: number; at: number }
  /** Since when there is a change that the store has not confirmed (ms). */
  unconfirmedSince: number | undefined
  /** The last message that is on its way, and since when (ms). */
  sent: { epoch: number; ended: number; at: number } | undefined
  /** Whether most of the limit is in use, by the last reply. */
  isNearLimit: boolean
  /** The permits that are not over, in the order of their last renewals. */
  readonly permits: Set<Permit>
  /** Since when nothing is held, and only this change is not confirmed (ms). */
  emptySince: number | undefined
  emptyPlace: Place<HeldUnits> | undefined
  sentPlace: Place<HeldUnits> | undefined
  renewalPlace: Place<HeldUnits> | undefined
}

/** From this share of the limit on, released units are reported at once. */
const NEAR_LIMIT = 0.8

/** A message without an answer after this time is sent again (ms). */
const MESSAGE_TIMEOUT_MS = 500

/** From this number on, the next permit begins an epoch: the numbers of an epoch have to stay below MAX_UNITS. */
const MAX_STARTED = 8e6

/**
 * When the record of one identity is due for its renewal, those that will be due soon are renewed with it: after this share of the
 * interval. So renewals of many identities travel together, and each takes at most 1.2 times the messages that it needs.
 */
const EARLIEST_RENEWAL_SHARE = 0.85

/** A pause of the isolate is at least this share of a `ttl`: without one, a request renews its permit in each third. */
const PAUSE_SHARE = 0.6

/** For how long no permit is given up after a pause, while the timers that are due run (ms); at most the interval between renewals. */
const AFTER_PAUSE_MS = 1000

/** Timers can be early by a millisecond, so a renewal is due a little before the end of the interval. */
const DUE_SHARE = 0.98

/**
 * How many identities are kept only because the store has not confirmed that they are free. In an outage, they would grow without
 * bound. The oldest are forgotten first: their records in the store end by themselves.
 */
const MAX_EMPTY = 10_000

/** The interval between two renewals: a third of the `ttl` (ms). */
export const renewalMs = ({ ttl }: Pick<Message, 'ttl'>) => ttl / 3e3

export class Holdings {
  readonly #now: () => number
  readonly #createHolderName: () => string
  readonly #heldUnits = new Map<string, HeldUnits>()
  /** Changes to send that are not on their way, the oldest first. */
  readonly #unsent = new Set<HeldUnits>()
  /** Those whose messages are on their way, in the order of sending. */
  readonly #sent = new Queue<'sentPlace', HeldUnits>('sentPlace')
  /** Those with permits, by `ttl`, in the order of their last confirmations. */
  readonly #renewals = new Map<number, Queue<'renewalPlace', HeldUnits>>()
  /** Those of which nothing is held, in the order in which they became empty. */
  readonly #empty = new Queue<'emptyPlace', HeldUnits>('emptyPlace')
  readonly #maxEpochs: number
  #holderName: string | undefined
  #epoch = 0
  /** When the isolate was last known to run (ms). */
  #ranAt: number
  /** The last long time in which it has not run (ms). */
  #pause = { ms: 0, endedAt: Number.NEGATIVE_INFINITY }

  /**
   * @param now ms
   * @param newName creates the name of a holder: eight letters and digits that no other isolate has
   * @param maxEpochs after this many epochs, the isolate takes another name
   */
  constructor(now: () => number, newName = () => randomName(8), maxEpochs = 2 ** 32 - 1) {
    this.#ranAt = now()
    this.#now = () => this.#noteRun(now())
    this.#createHolderName = newName
    this.#maxEpochs = maxEpochs
  }

  /**
   * Takes a permit for the cost of a rule, before the request is decided.
   * @param mostAtOnce the highest limit that the store can apply: it refuses a higher cost for sure
   */
  takePermit(rule: BoundRule, mostAtOnce = Number.POSITIVE_INFINITY): Permit {
    const held = this.#heldFor(rule)
    this.#giveUpExpired(held)
    // Epochs are short, so that a wrong count in the store is soon corrected.
    if (this.#hasElapsed(held.epochStartedAt, renewalMs(held)) || held.started > MAX_STARTED)
      this.#beginEpoch(held)
    const units = rule.cost > mostAtOnce ? 0 : rule.cost
    held.pending += units
    const { holding } = messageOf(held)
    const permit: Permit = { rule, units, held, holding, state: 'pending', aliveAt: this.#now() }
    held.permits.add(permit)
    return permit
  }

  /**
   * Resolves a permit. Only the first call for a permit has an effect.
   * @param usedShare the used part of the limit, from 0 to 1, by the reply of the store; absent: unknown
   * @param consumer if only the store knew it
   */
  resolve(permit: Permit, result: PermitResult, usedShare?: number, consumer?: string): void {
    if (permit.state !== 'pending') return
    const { held, units, holding } = permit
    held.key = withConsumer(held.key, consumer)
    const isOfCurrentEpoch = holding.epoch === held.epoch && holding.holder === held.holder
    held[isOfCurrentEpoch ? 'pending' : 'unresolved'] -= units
    if (result === 'admitted') {
      permit.state = 'in flight'
      held.inFlight += units
      // Permits of an earlier epoch were added to `started` when this epoch began.
      if (isOfCurrentEpoch) held.started += units
      this.#confirm(held, holding)
    } else {
      this.#end(permit)
      if (!isOfCurrentEpoch) noteEnded(held)
      else if (result === 'lost' && units > 0) this.#beginEpoch(held)
    }
    if (usedShare !== undefined) held.isNearLimit = usedShare >= NEAR_LIMIT
    this.#updateIndexes(held)
  }

  /** Puts a resolved permit in flight, because the isolate has admitted the request without the store. */
  hold(permit: Permit): void {
    const { held, rule } = permit
    if (permit.state !== 'over') return
    permit.state = 'in flight'
    permit.units = rule.cost
    permit.aliveAt = this.#now()
    held.permits.add(permit)
    held.inFlight += permit.units
    // This needs a new epoch. Within an epoch the store keeps the larger of its own `started` and that of the message. If the store and
    // the isolate had each added a unit, only one of the two would be counted.
    this.#beginEpoch(held)
    this.#heldUnits.set(held.mapKey, held)
    this.#updateIndexes(held)
  }

  /** Releases the units of a request that is over. @returns whether to report this at once */
  release(permit: Permit): boolean {
    if (permit.state !== 'in flight') return false
    const { held, units } = permit
    this.#end(permit)
    held.inFlight -= units
    noteEnded(held)
    this.#updateIndexes(held)
    return held.isNearLimit
  }

  /** Renews a permit: its request is still in flight. */
  renew(permit: Permit): void {
    if (permit.state === 'over') return
    permit.aliveAt = this.#now()
    const { permits } = permit.held
    if (permits.size === 1) return
    permits.delete(permit)
    permits.add(permit)
  }

  /** The rule with the units that the isolate holds for sure, so that it can decide by itself. */
  withHeldUnits({ holding, ...rule }: BoundRule): BoundRule {
    const held = rule.sideKey === undefined ? undefined : this.#heldUnits.get(rule.sideKey)
    if (!held) return rule
    const limit = holding?.limit !== undefined && { limit: holding.limit }
    return { ...rule, holding: { ...messageOf(held).holding, started: held.inFlight, ended: 0, ...limit } }
  }

  /** Since when `unconfirmed` would return messages (ms). */
  unconfirmedSince(): number | undefined {
    this.#expireSent()
    const [oldest] = this.#unsent
    return oldest?.unconfirmedSince
  }

  /**
   * The changes that the store has not confirmed, to be sent now. They are not returned again while they may be on their way.
   * @param except keys to leave out, because the same HTTP request has another message about them
   * @param most how many are returned, the oldest first
   */
  unconfirmed(except: ReadonlySet<string> = new Set(), most = Number.POSITIVE_INFINITY): Message[] {
    this.#expireSent()
    const messages: Message[] = []
    for (const held of this.#unsent) {
      if (messages.length >= most) break
      if (except.has(held.key)) continue
      this.#giveUpExpired(held)
      if (this.#unsent.has(held)) messages.push(this.#send(held))
    }
    return messages
  }

  /**
   * The messages that renew records in the store before they expire. Each begins a new epoch, which corrects wrong counts in the store.
   * None are returned before one of them is due. They are not returned again while they may be on their way.
   * @param most how many are returned, the oldest first
   */
  renewalsDue(most = Number.POSITIVE_INFINITY): Message[] {
    const messages: Message[] = []
    for (const queue of this.#renewals.values()) {
      if (!this.#isDue(queue.first, DUE_SHARE)) continue
      for (const held of queue) {
        if (messages.length >= most || !this.#isDue(held, EARLIEST_RENEWAL_SHARE)) break
        // Until its message is confirmed or lost, it is not looked at again.
        queue.delete(held)
        this.#giveUpExpired(held)
        if (held.inFlight > 0 && isConsumerKnown(held.key)) {
          this.#beginEpoch(held)
          this.#updateIndexes(held)
          messages.push(this.#send(held))
        } else if (held.permits.size > 0) {
          // Nothing to renew yet. It is looked at again after an interval.
          held.confirmed.at = this.#now()
          queue.add(held)
        }
      }
    }
    return messages
  }

  /** Whether `renewalsDue` would return messages. */
  isRenewalDue(): boolean {
    for (const { first } of this.#renewals.values()) if (this.#isDue(first, DUE_SHARE)) return true
    return false
  }

  /** Whether a share of the interval between renewals has passed. */
  #isDue(held: HeldUnits | undefined, share: number): boolean {
    return held !== undefined && this.#hasElapsed(held.confirmed.at, share * renewalMs(held))
  }

  /** The time until the record of a permit is due for its renewal (ms); 0 or less: it is due, or on its way. */
  msUntilRenewal({ held }: Permit): number {
    return held.confirmed.at + renewalMs(held) - this.#now()
  }

  /** Notes that the store has received these messages. */
  confirm(messages: readonly Message[]): void {
    for (const { key, holding } of messages) {
      const held = this.#heldUnits.get(holding.holder) ?? this.#heldUnits.get(key)
      if (held?.holder !== holding.holder) continue
      this.#confirm(held, holding)
      this.#updateIndexes(held)
    }
  }

  /** All units that are held, or that have unconfirmed changes. */
  get heldUnits(): readonly Readonly<Omit<HeldUnits, 'permits'>>[] {
    return [...this.#heldUnits.values()]
  }

  #heldFor({ sideKey: key, rule }: BoundRule): HeldUnits {
    if (key === undefined) throw new Error(`The rule ${rule.name} counts no requests in flight.`)
    // If only the store knows the consumer, the isolate does not know what it already holds of it. So the request is a holder of its own.
    const isHeldByIsolate = isConsumerKnown(key)
    const known = isHeldByIsolate ? this.#heldUnits.get(key) : undefined
    if (known) return known
    this.#forgetEmpty()
    const [now, epoch] = [this.#now(), this.#nextEpoch()]
    const holder = isHeldByIsolate ? this.#isolateHolderName() : this.#createHolderName()
    const mapKey = isHeldByIsolate ? key : holder
    const held: HeldUnits = {
      ...{ mapKey, key, holder, isHeldByIsolate, ttl: rule.quota.period, epoch, epochStartedAt: now },
      ...{ started: 0, ended: 0, pending: 0, unresolved: 0, inFlight: 0, isNearLimit: false },
      confirmed: { epoch, ended: 0, at: now },
      ...{ sent: undefined, unconfirmedSince: undefined },
      permits: new Set(),
      ...{ emptySince: undefined, emptyPlace: undefined, sentPlace: undefined, renewalPlace: undefined },
    }
    this.#heldUnits.set(mapKey, held)
    if (!this.#renewals.has(held.ttl)) this.#renewals.set(held.ttl, new Queue('renewalPlace'))
    return held
  }

  /** Forgets identities of which nothing is held, when the record of the store has ended, or when there are too many. */
  #forgetEmpty(): void {
    for (const held of this.#empty) {
      if (!this.#hasElapsed(held.emptySince!, held.ttl / 1e3) && this.#empty.size <= MAX_EMPTY) return
      this.#forget(held)
    }
  }

  #forget(held: HeldUnits): void {
    this.#heldUnits.delete(held.mapKey)
    this.#unsent.delete(held)
    this.#sent.delete(held)
    this.#renewals.get(held.ttl)!.delete(held)
    this.#empty.delete(held)
  }

  /** An epoch that is later than all others of the same holder. When the four bytes of an epoch are used up, the isolate takes another name. */
  #nextEpoch(): number {
    if (this.#epoch >= this.#maxEpochs) {
      this.#epoch = 0
      this.#holderName = undefined
    }
    return ++this.#epoch
  }

  #isolateHolderName(): string {
    this.#holderName ??= this.#createHolderName()
    return this.#holderName
  }

  /** Begins a new epoch. Permits that are not resolved count as admitted until they are resolved. */
  #beginEpoch(held: HeldUnits): void {
    held.epoch = this.#nextEpoch()
    if (held.isHeldByIsolate && held.holder !== this.#isolateHolderName()) {
      held.holder = this.#isolateHolderName()
      held.confirmed.epoch = 0
    }
    held.epochStartedAt = this.#now()
    held.unresolved += held.pending
    held.pending = 0
    held.started = countedIn(held)
    held.ended = 0
  }

  /** Notes that the isolate runs, and whether it was paused before. A clock that jumps looks like a pause. */
  #noteRun(now: number): number {
    const ms = Math.abs(now - this.#ranAt)
    this.#ranAt = now
    const { endedAt, ms: before } = this.#pause
    if (ms > 0 && (ms >= before || Math.abs(now - endedAt) > AFTER_PAUSE_MS))
      this.#pause = { ms, endedAt: now }
    return now
  }

  /** Whether a pause has just ended in which requests could not renew their permits. */
  #hasJustPaused({ ttl }: HeldUnits): boolean {
    const now = this.#now()
    const { ms, endedAt } = this.#pause
    return ms >= (PAUSE_SHARE * ttl) / 1e3 && now - endedAt < Math.min(AFTER_PAUSE_MS, renewalMs({ ttl }))
  }

  #giveUpExpired(held: HeldUnits): void {
    if (this.#hasJustPaused(held)) return
    for (const permit of held.permits) {
      if (!this.#hasElapsed(permit.aliveAt, held.ttl / 1e3)) return
      if (permit.state === 'pending') this.resolve(permit, 'lost')
      else this.release(permit)
    }
  }

  #send(held: HeldUnits): Message {
    held.sent = { epoch: held.epoch, ended: held.ended, at: this.#now() }
    this.#unsent.delete(held)
    this.#sent.delete(held)
    this.#sent.add(held)
    return messageOf(held)
  }

  /** Messages without an answer are sent again. */
  #expireSent(): void {
    for (const held of this.#sent) {
      if (!this.#hasElapsed(held.sent!.at, MESSAGE_TIMEOUT_MS)) return
      this.#sent.delete(held)
      held.sent = undefined
      this.#updateIndexes(held)
    }
  }

  #end(permit: Permit): void {
    permit.state = 'over'
    permit.held.permits.delete(permit)
  }

  /** Notes that the store has confirmed a message. Units that ended after it was sent are still unconfirmed. */
  #confirm(held: HeldUnits, { epoch, ended }: Holding): void {
    const { confirmed, ttl } = held
    confirmed.at = this.#now()
    // The last to be renewed.
    const renewals = this.#renewals.get(ttl)!
    if (renewals.delete(held)) renewals.add(held)
    if (epoch < confirmed.epoch || (epoch === confirmed.epoch && ended <= confirmed.ended)) return
    Object.assign(confirmed, { epoch, ended })
    held.unconfirmedSince = undefined
    this.#unsent.delete(held)
  }

  /** Updates after a change: what there is to send and to renew, and whether the entry can be deleted. */
  #updateIndexes(held: HeldUnits): void {
    const { ttl, epoch, started, ended, confirmed, sent, permits } = held
    const isUnconfirmed = confirmed.epoch !== epoch || confirmed.ended !== ended
    const isKnown = isConsumerKnown(held.key)
    const isEmpty = permits.size === 0 && started === ended
    if (isEmpty && (!isUnconfirmed || !isKnown)) {
      this.#forget(held)
      return
    }
    held.unconfirmedSince = isUnconfirmed ? (held.unconfirmedSince ?? this.#now()) : undefined
    const isOnItsWay = sent?.epoch === epoch && sent.ended === ended
    if (isUnconfirmed && isKnown && !isOnItsWay) this.#unsent.add(held)
    else this.#unsent.delete(held)
    // A message about its renewal may be on its way. If it is lost, it is sent again as an unconfirmed change.
    if (permits.size === 0) this.#renewals.get(ttl)!.delete(held)
    else if (!isUnconfirmed) this.#renewals.get(ttl)!.add(held)
    held.emptySince = isEmpty ? (held.emptySince ?? this.#now()) : undefined
    if (isEmpty) this.#empty.add(held)
    else this.#empty.delete(held)
  }

  /** Whether `ms` have passed since `time`. Also true if `time` is that far in the future, because the clock was set back. */
  #hasElapsed(time: number, ms: number): boolean {
    return Math.abs(this.#now() - time) >= ms
  }
}

/** The units that the store counts in this epoch: all that it may have admitted, as far as they fit into its record. */
const countedIn = ({ inFlight, unresolved }: HeldUnits) => Math.min(inFlight + unresolved, MAX_UNITS)

/** Notes in `ended` that fewer units count than before. */
function noteEnded(held: HeldUnits): void {
  held.ended = held.started - countedIn(held)
}

function messageOf({ key, holder, epoch, started, ended, ttl }: HeldUnits): Message {
  return { key, ttl, holding: { holder, epoch, started, ended } }
}
