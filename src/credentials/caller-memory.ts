/**
 * Remembers the store's answers about callers, for decisions while the store does not answer: admitted credentials
 * with their consumer and plan, and blocked consumers. Only credentials that the store has admitted are added, and revoked
 * keys with a valid signature, so made-up keys cannot evict others. Plain data, bounded in number and time.
 */
import type { CallerMode } from '../config/caller-mode.ts'
import type { Credentials } from '../config/compile-credentials.ts'
import { Lru } from '../lru.ts'
import type { Outcome } from '../script/evaluation.ts'
import { UNKNOWN_CONSUMER } from '../store/keys.ts'
import type { Credential } from './credential.ts'

/** The store's last answer about a caller. Absent fields are unknown. */
export interface RememberedCaller {
  /** Absent: only the block of the consumer is known. */
  plan?: string
  consumer?: string
  /** Absent: live. */
  mode?: CallerMode
  isBlocked?: boolean
  /** The credential was valid once, and the store does not know it any more: it was revoked, or has expired. */
  isUnknown?: boolean
}

/** Whether the store has admitted the caller, and has not refused its credential or blocked its consumer since. */
export const isAdmitted = (
  seen: RememberedCaller | undefined,
): seen is RememberedCaller & Required<Pick<RememberedCaller, 'plan' | 'consumer'>> =>
  seen?.plan !== undefined && !seen.isBlocked && !seen.isUnknown

type Answer = Pick<Outcome, 'status' | 'plan' | 'consumer' | 'at' | 'blockedUntil'>

/** An answer of the store that changes what is known of a caller. Plain data. */
export interface CallerNews {
  credential: Claimed
  answer: Answer
}

/** News of some time ago. */
export interface AgedNews extends CallerNews {
  /** Absent: 0. */
  ageMs?: number
}

/** Connects the memories of several processes, so that a caller that one has admitted passes in all of them during an outage. */
export interface CallerExchange {
  publish(news: CallerNews): void
  /** @param learn gets the news of the others */
  subscribe(learn: (news: AgedNews) => void): void
}

/** About 300 bytes each; up to twice as many are kept. */
const MAX_REMEMBERED = 10_000

/** A caller that stays is shared again after this part of the time for which it is remembered. */
const SHARED_AGAIN = 0.5

/** Ends of a block that differ by less are the same (ms): the clock of the store is read in each answer. */
const SAME_END_MS = 1000

/** A credential with the consumer that it claims. */
type Claimed = Pick<Credential, 'digest' | 'consumer' | 'mode' | 'subject'>

/** Tokens are replaced often, so their consumer is the key; the prefix keeps it apart from digests. */
export const memoryKey = ({ digest, consumer, subject }: Claimed) =>
  subject.kind === 'token' ? `token ${consumer}` : digest

const passesInOutage = ({ subject }: Claimed) => subject.kind === 'key' && subject.planInOutage !== undefined

interface Admitted
  extends Required<Pick<RememberedCaller, 'plan' | 'consumer'>>,
    Pick<RememberedCaller, 'mode'> {
  /** Until when the credential passes without the store (ms since the epoch). A signed key keeps its plan after that. */
  until: number
  /** When it was last sent to other processes (ms since the epoch). */
  sharedAt: number
}

interface Block {
  /** When it ends, by the clock of this isolate (ms). */
  until: number
  /** When the store has answered this, by its clock (µs). */
  at: number
}

export class CallerMemory {
  readonly #credentials: Lru<Admitted>
  readonly #seenForMs: number
  readonly #blocked: Lru<Block>
  /** When the store has answered this, by its clock (µs). */
  readonly #unknown: Lru<number>
  readonly #now: () => number
  #publish: CallerExchange['publish'] | undefined

  /** @param now ms since the epoch */
  constructor(
    { seenForMs, signedForMs }: Pick<Credentials, 'seenForMs' | 'signedForMs'>,
    now: () => number = Date.now,
  ) {
    this.#now = now
    this.#seenForMs = seenForMs
    this.#credentials = new Lru({ size: MAX_REMEMBERED })
    // A signed key passes however long an outage lasts, so its revocation must not be forgotten.
    const refused = { size: MAX_REMEMBERED, ...(!signedForMs && { maxAgeMs: seenForMs }) }
    this.#blocked = new Lru(refused)
    this.#unknown = new Lru(refused)
  }

  /** Whether the store has admitted the credential lately. Faster than `recall`. */
  hasAdmitted(credential: Claimed): boolean {
    const admitted = this.#credentials.peek(memoryKey(credential))
    return admitted !== undefined && admitted.until > this.#now()
  }

  recall(credential: Claimed): RememberedCaller | undefined {
    const key = memoryKey(credential)
    const admitted = this.#credentials.get(key)
    const isUsable = admitted && (passesInOutage(credential) || admitted.until > this.#now())
    const seen = isUsable ? admitted : undefined
    const block = this.#blocked.peek(seen?.consumer ?? credential.consumer)
    const isBlocked = block !== undefined && block.until > this.#now()
    const isUnknown = this.#unknown.peek(key) !== undefined
    if (!isBlocked && !isUnknown) return seen
    return { ...seen, ...(isBlocked && { isBlocked }), ...(isUnknown && { isUnknown }) }
  }

  shareWith({ publish, subscribe }: CallerExchange): void {
    this.#publish = publish
    // The news are only of credentials that were valid once.
    subscribe(({ credential, answer, ageMs = 0 }) => {
      this.#learn(credential, answer, { now: this.#now() - ageMs, wasValid: true })
    })
  }

  /**
   * Remembers the store's answer to a request.
   *
   * @param outcome of a request with this credential
   */
  remember(credential: Claimed, outcome: Answer): void {
    const known = this.#credentials.peek(memoryKey(credential))
    // If this process has not admitted it lately, another one may have.
    const wasValid = known !== undefined || passesInOutage(credential)
    if (!this.#learn(credential, outcome, { now: this.#now(), wasValid }) || !this.#publish) return
    const { digest, consumer, mode, subject } = credential
    const { status, plan, consumer: owner = known?.consumer, at, blockedUntil } = outcome
    this.#publish({
      credential: { digest, consumer, subject, ...(mode && { mode }) },
      answer: {
        ...{ status, plan, at },
        ...(owner !== undefined && { consumer: owner }),
        ...(blockedUntil && { blockedUntil }),
      },
    })
  }

  /**
   * @param now when the answer came (ms since the epoch)
   * @param wasValid whether the credential was valid once, as far as this process knows
   * @returns whether other processes may not know it
   */
  #learn(
    credential: Claimed,
    outcome: Answer,
    { now, wasValid }: { now: number; wasValid: boolean },
  ): boolean {
    const key = memoryKey(credential)
    const owner = outcome.consumer ?? this.#credentials.get(key)?.consumer ?? credential.consumer
    const isKnown = owner !== UNKNOWN_CONSUMER
    switch (outcome.status) {
      case 'admitted': {
        const refusedAt = Math.max(this.#blocked.peek(owner)?.at ?? 0, this.#unknown.peek(key) ?? 0)
        // An answer can arrive after later ones, above all that to another process.
        if (refusedAt > outcome.at) return false
        this.#blocked.delete(owner)
        this.#unknown.delete(key)
        if (!isKnown) return false
        const known = this.#credentials.peek(key)
        // A token names its plan itself. A caller with two of them must not cause a message with each request.
        const isSamePlan = credential.subject.kind === 'token' || known?.plan === outcome.plan
        const isNews =
          refusedAt > 0 || !known || !isSamePlan || now - known.sharedAt >= this.#seenForMs * SHARED_AGAIN
        const sharedAt = isNews ? now : known.sharedAt
        const mode = credential.mode === 'test' && { mode: credential.mode }
        const until = now + this.#seenForMs
        this.#credentials.set(key, { plan: outcome.plan, consumer: owner, until, sharedAt, ...mode })
        return isNews
      }
      case 'blocked': {
        if (!isKnown) return false
        // The end is by the clock of the store.
        const { at, blockedUntil = Number.POSITIVE_INFINITY } = outcome
        const until = now + (blockedUntil - at) / 1e3
        const known = this.#blocked.peek(owner)
        this.#blocked.set(owner, { until, at })
        return known === undefined || until - known.until > SAME_END_MS
      }
      case 'unknown-credential': {
        // Only of credentials that were valid once, as everything here.
        const isNews = wasValid && this.#unknown.peek(key) === undefined
        if (wasValid) this.#unknown.set(key, outcome.at)
        this.#credentials.delete(key)
        return isNews
      }
      // A refusal by a limit changes nothing: it reports neither a block nor the validity of the credential.
      default:
        return false
    }
  }
}
