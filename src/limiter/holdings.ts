/**
 * What this isolate holds: units of requests in flight, by identity and rule. Plain bookkeeping, without I/O and timers.
 * docs/concurrency.md describes the messages that are made of it, and proves what they promise.
 *
 * A request claims its units before it is decided. The claim is settled once: admitted, refused, or lost, where it is unknown
 * what the store has done. After a lost claim the isolate counts anew: the messages of a later epoch hold all that it may hold, and the
 * store forgets the rest.
 *
 * A platform can end a request without running any more of its code. So a claim must be renewed by the request that has it; one
 * that is not renewed for the `ttl` of its rule is given up.
 */
import type { Holding } from '../algorithms/algorithm.ts'
import { BASE62 } from '../base62.ts'
import type { BoundRule } from '../script/evaluation.ts'
import type { Message } from '../script/sync.ts'
import { UNKNOWN_CONSUMER_TAG } from '../store/keys.ts'

/** The units that one request claims under one rule. */
export interface Claim {
  readonly rule: BoundRule
  /** Goes to the store with the request. */
  readonly holding: Holding
}

/** What becomes of a claim. */
export type Settlement =
  /** The store has counted it. */
  | 'admitted'
  /** The store has not counted it. */
  | 'refused'
  /** The store may have counted it. */
  | 'lost'

interface OwnClaim extends Claim {
  rule: BoundRule
  readonly held: Held
  state: 'pending' | 'in flight' | 'over'
  /** The store has admitted it, and not the isolate by itself. */
  isAdmitted: boolean
  /** When its request was last known to be alive (ms). */
  aliveAt: number
}

/** What the isolate holds of one identity under one rule. */
interface Held {
  /** Where it stands in the isolate: the key, or a name of its own while only the store knows the key. */
  readonly place: string
  key: string
  holder: string
  /** The holder is the isolate, and not a request by itself. */
  readonly isOfIsolate: boolean
  /** When a dead isolate's units are free again (µs). */
  readonly ttl: number
  epoch: number
  /** When the epoch began (ms). */
  since: number
  started: number
  ended: number
  /** Units of claims of this epoch that are not settled: the store adds them to `started` by itself. */
  pending: number
  /** Units that are in flight for sure. */
  units: number
  /** The last message that the store has confirmed, and when (ms). */
  confirmed: { epoch: number; ended: number; at: number }
  /** Since when there is something that the store has not confirmed (ms since 1970). */
  unconfirmedSince: number | undefined
  /** The last message that is on its way, and since when (ms). */
  sent: { epoch: number; ended: number; at: number } | undefined
  /** By the last reply, most of the limit is in use. */
  isNearLimit: boolean
  /** Those that are not over; the one that was renewed last is at the end. */
  readonly claims: Set<OwnClaim>
}

/** From this share of the limit on, a unit that is free again is reported at once. */
const NEAR_LIMIT = 0.8

/** A message without an answer for so long is sent again (ms): no call to the store takes longer. */
const LOST_MS = 500

/** The numbers of an epoch fit into three bytes. */
const MOST_STARTED = 8e6

/** A message that was confirmed in the second half of the time before a renewal takes its place. So none is older than half the ttl. */
const EARLIEST = 0.5

/** How often what is held is sent again (ms). */
export const renewalMs = ({ ttl }: Pick<Message, 'ttl'>) => ttl / 3e3

const NONE: ReadonlySet<string> = new Set()

export class Holdings {
  readonly #now: () => number
  readonly #newName: () => string
  readonly #helds = new Map<string, Held>()
  readonly #unconfirmed = new Set<Held>()
  readonly #mostEpochs: number
  #name: string | undefined
  #epoch = 0

  /**
   * @param now ms
   * @param newName names a holder: eight letters and digits that no other isolate has
   * @param mostEpochs of one name
   */
  constructor(now: () => number, newName: () => string = randomName, mostEpochs = 2 ** 32 - 1) {
    this.#now = now
    this.#newName = newName
    this.#mostEpochs = mostEpochs
  }

  /** Claims the cost of a rule. */
  claim(rule: BoundRule): Claim {
    const held = this.#heldFor(rule)
    this.#giveUpDead(held)
    // Epochs are short, so that the store soon forgets whatever has gone wrong in one.
    if (this.#isPast(held.since, renewalMs(held)) || held.started > MOST_STARTED) this.#beginEpoch(held)
    held.pending += rule.cost
    const { holding } = messageOf(held)
    const claim: OwnClaim = { rule, held, holding, state: 'pending', isAdmitted: false, aliveAt: this.#now() }
    held.claims.add(claim)
    return claim
  }

  /**
   * Once for each claim.
   * @param use of the limit, from 0 to 1, by the reply of the store; absent: unknown
   */
  settle(claim: Claim, settlement: Settlement, use?: number): void {
    const own = claim as OwnClaim
    if (own.state !== 'pending') return
    const { held, rule, holding } = own
    const isOfEpoch = holding.epoch === held.epoch && holding.holder === held.holder
    if (isOfEpoch) held.pending -= rule.cost
    if (settlement === 'admitted') {
      own.state = 'in flight'
      own.isAdmitted = true
      held.units += rule.cost
      // The claims of an earlier epoch were counted when this one began.
      if (isOfEpoch) held.started += rule.cost
      this.#confirm(held, holding)
    } else {
      this.#end(own)
      if (!isOfEpoch) held.ended += rule.cost
      else if (settlement === 'lost') this.#beginEpoch(held)
    }
    if (use !== undefined) held.isNearLimit = use >= NEAR_LIMIT
    this.#note(held)
  }

  /**
   * Settles a claim of units in advance, of which the store has counted some.
   * @returns a claim for each of these, in flight
   */
  grant(claim: Claim, units: number): Claim[] {
    const own = claim as OwnClaim
    if (own.state !== 'pending') return []
    const { held, rule } = own
    // The store has counted a part of them, and has not counted the others.
    own.rule = { ...rule, cost: rule.cost - units }
    const parts = Array.from({ length: units }, (): OwnClaim => ({ ...own, rule: { ...rule, cost: 1 } }))
    for (const part of parts) {
      held.claims.add(part)
      this.settle(part, 'admitted')
    }
    this.settle(own, 'refused')
    this.#confirm(held, own.holding)
    this.#note(held)
    return parts
  }

  /** Whether the store has admitted what is in flight, and has confirmed a message so lately that it surely counts it. */
  isConfirmed(claim: Claim): boolean {
    const { state, isAdmitted, held } = claim as OwnClaim
    return state === 'in flight' && isAdmitted && !this.#isPast(held.confirmed.at, renewalMs(held))
  }

  /** What the isolate surely has in flight. */
  unitsOf({ ownKey = '' }: BoundRule): number {
    return this.#helds.get(ownKey)?.units ?? 0
  }

  /** The isolate has admitted by itself what the store has not counted. */
  hold(claim: Claim): void {
    const own = claim as OwnClaim
    const { held, rule } = own
    if (own.state !== 'over') return
    own.state = 'in flight'
    own.aliveAt = this.#now()
    held.claims.add(own)
    held.started += rule.cost
    held.units += rule.cost
    // In a new epoch: the store adds units to `started` by itself meanwhile, and takes the larger of two numbers for both.
    this.#beginEpoch(held)
    this.#helds.set(held.place, held)
    this.#note(held)
  }

  /** The request is over. @returns whether to report it at once */
  release(claim: Claim): boolean {
    const own = claim as OwnClaim
    if (own.state !== 'in flight') return false
    const { held, rule } = own
    this.#end(own)
    held.ended += rule.cost
    held.units -= rule.cost
    this.#note(held)
    return held.isNearLimit
  }

  /** The request is still in flight. */
  renew(claim: Claim): void {
    const own = claim as OwnClaim
    if (own.state === 'over') return
    own.aliveAt = this.#now()
    own.held.claims.delete(own)
    own.held.claims.add(own)
  }

  /** The key of a claim that only the store could name. */
  rename(claim: Claim, key: string): void {
    const { held } = claim as OwnClaim
    held.key = key
  }

  /** The rule with what the isolate surely holds: to decide by itself. */
  known({ holding: _, ...rule }: BoundRule): BoundRule {
    const held = rule.ownKey === undefined ? undefined : this.#helds.get(rule.ownKey)
    return held ? { ...rule, holding: { ...messageOf(held).holding, started: held.units, ended: 0 } } : rule
  }

  /** Whether `unconfirmed` would return something. */
  get hasUnconfirmed(): boolean {
    return this.unconfirmedSince() !== undefined
  }

  /** Since when that is so (ms). @param except keys that do not count */
  unconfirmedSince(except: ReadonlySet<string> = NONE): number | undefined {
    const waiting = [...this.#unconfirmed].filter(held => !except.has(held.key) && this.#isUnsent(held))
    return waiting.length > 0 ? Math.min(...waiting.map(held => held.unconfirmedSince!)) : undefined
  }

  /**
   * What the store has not confirmed, to be sent now. It is not returned again while it may be on its way.
   * @param except keys about which the same request speaks
   */
  unconfirmed(except: ReadonlySet<string> = NONE): Message[] {
    const messages: Message[] = []
    for (const held of this.#unconfirmed) {
      if (except.has(held.key) || !this.#isUnsent(held)) continue
      held.sent = { epoch: held.epoch, ended: held.ended, at: this.#now() }
      messages.push(messageOf(held))
    }
    return messages
  }

  /**
   * What must be sent again, or its record in the store expires. Each begins an epoch, so that whatever has gone wrong in
   * the store is forgotten.
   */
  due(): Message[] {
    return [...this.#helds.values()].flatMap(held => {
      this.#giveUpDead(held)
      const dueMs = EARLIEST * renewalMs(held)
      const isDue = held.units > 0 && isNamed(held.key) && this.#isPast(held.confirmed.at, dueMs)
      if (!isDue) return []
      this.#beginEpoch(held)
      this.#note(held)
      return [messageOf(held)]
    })
  }

  /** The store has received these messages. */
  confirm(messages: readonly Message[]): void {
    const helds = [...this.#helds.values()]
    for (const { key, holding } of messages) {
      const held = helds.find(held => held.key === key && held.holder === holding.holder)
      if (!held) continue
      this.#confirm(held, holding)
      this.#note(held)
    }
  }

  /** What is held, or is not confirmed. */
  get all(): readonly Readonly<Omit<Held, 'claims'>>[] {
    return [...this.#helds.values()]
  }

  #heldFor({ ownKey: key, rule }: BoundRule): Held {
    if (key === undefined) throw new Error(`The rule ${rule.name} counts no requests in flight.`)
    // Where only the store knows the consumer, the isolate does not know what it holds of it: the request is a holder by itself.
    const isOfIsolate = isNamed(key)
    const known = isOfIsolate ? this.#helds.get(key) : undefined
    if (known) return known
    const [now, epoch] = [this.#now(), this.#nextEpoch()]
    const holder = isOfIsolate ? this.#ownName() : this.#newName()
    const place = isOfIsolate ? key : holder
    const held: Held = {
      ...{ place, key, holder, isOfIsolate, ttl: rule.quota.period, epoch, since: now },
      ...{ started: 0, ended: 0, pending: 0, units: 0, isNearLimit: false },
      confirmed: { epoch, ended: 0, at: now },
      ...{ sent: undefined, unconfirmedSince: undefined },
      claims: new Set(),
    }
    this.#helds.set(place, held)
    return held
  }

  /** Later than all others of the same holder. An isolate that has used up the four bytes of an epoch takes another name. */
  #nextEpoch(): number {
    if (this.#epoch >= this.#mostEpochs) {
      this.#epoch = 0
      this.#name = undefined
    }
    return ++this.#epoch
  }

  #ownName(): string {
    this.#name ??= this.#newName()
    return this.#name
  }

  /** Counts anew. What is not settled is counted as admitted until it is settled otherwise. */
  #beginEpoch(held: Held): void {
    held.epoch = this.#nextEpoch()
    if (held.isOfIsolate && held.holder !== this.#ownName()) {
      held.holder = this.#ownName()
      held.confirmed.epoch = 0
    }
    held.since = this.#now()
    held.started = held.started - held.ended + held.pending
    held.ended = 0
    held.pending = 0
  }

  #giveUpDead(held: Held): void {
    for (const claim of held.claims) {
      if (!this.#isPast(claim.aliveAt, held.ttl / 1e3)) return
      if (claim.state === 'pending') this.settle(claim, 'lost')
      else this.release(claim)
    }
  }

  #isUnsent(held: Held): boolean {
    return isNamed(held.key) && !this.#isOnItsWay(held)
  }

  #isOnItsWay({ sent, epoch, ended }: Held): boolean {
    return (
      sent !== undefined && sent.epoch === epoch && sent.ended === ended && !this.#isPast(sent.at, LOST_MS)
    )
  }

  #end(claim: OwnClaim): void {
    claim.state = 'over'
    claim.held.claims.delete(claim)
  }

  /** What has ended since that message was sent counts from now. */
  #confirm(held: Held, { epoch, ended }: Holding): void {
    const { confirmed } = held
    confirmed.at = this.#now()
    if (epoch < confirmed.epoch || (epoch === confirmed.epoch && ended <= confirmed.ended)) return
    Object.assign(confirmed, { epoch, ended })
    held.unconfirmedSince = undefined
  }

  /** Whether there is something to send, and whether there is anything to remember. */
  #note(held: Held): void {
    const { place, epoch, started, ended, confirmed, claims } = held
    const isUnconfirmed = confirmed.epoch !== epoch || confirmed.ended !== ended
    held.unconfirmedSince = isUnconfirmed ? (held.unconfirmedSince ?? this.#now()) : undefined
    if (isUnconfirmed) this.#unconfirmed.add(held)
    else this.#unconfirmed.delete(held)
    if (claims.size === 0 && started === ended && (!isUnconfirmed || !isNamed(held.key))) {
      this.#unconfirmed.delete(held)
      this.#helds.delete(place)
    }
  }

  /** Of a time that lies ahead the same is true: a clock was set back. */
  #isPast(time: number, ms: number): boolean {
    return Math.abs(this.#now() - time) >= ms
  }
}

const isNamed = (key: string) => !key.includes(UNKNOWN_CONSUMER_TAG)

function messageOf({ key, holder, epoch, started, ended, ttl }: Held): Message {
  return { key, ttl, holding: { holder, epoch, started, ended } }
}

function randomName(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(8))
  return Array.from(bytes, byte => BASE62[byte % 62]).join('')
}
