/**
 * What this isolate has seen of callers, for the time when the store cannot be asked: credentials that were let in, whose
 * they are and on which plan, and consumers that are blocked. Only what the store has vouched for gets in, so made-up
 * keys cannot push others out. Plain data, bounded in number and time.
 */
import { Lru } from '../lru.ts'
import type { Outcome } from '../script/evaluation.ts'
import { UNKNOWN_CONSUMER } from '../store/keys.ts'
import type { Credential } from './credential.ts'

/** What the store last said of who shows a credential. */
export interface Seen {
  /** Absent: nothing of the credential itself. */
  plan?: string
  consumer?: string
  isBlocked?: boolean
}

/** Some 300 bytes each; up to twice as many are kept. */
const MOST_SEEN = 10_000

/** A credential, and whose it is as far as it says so itself. */
type Shown = Pick<Credential, 'digest' | 'consumer' | 'subject'>

/** Tokens come and go; whose they are stays. A consumer's name is not a digest of a key, whatever it looks like. */
const nameOf = ({ digest, consumer, subject }: Shown) =>
  subject.kind === 'token' ? `token ${consumer}` : digest

export class SeenCredentials {
  readonly #credentials: Lru<Required<Pick<Seen, 'plan' | 'consumer'>>>
  readonly #blocked: Lru<true>

  constructor({ seenForMs }: { seenForMs: number }) {
    this.#credentials = new Lru({ size: MOST_SEEN, maxAgeMs: seenForMs })
    this.#blocked = new Lru({ size: MOST_SEEN, maxAgeMs: seenForMs })
  }

  recall(shown: Shown): Seen | undefined {
    const seen = this.#credentials.get(nameOf(shown))
    const isBlocked = this.#blocked.peek(seen?.consumer ?? shown.consumer)
    return isBlocked ? { ...seen, isBlocked } : seen
  }

  /** @param outcome of a request that showed it */
  learn(shown: Shown, outcome: Pick<Outcome, 'status' | 'plan' | 'consumer'>): void {
    const name = nameOf(shown)
    const owner = outcome.consumer ?? this.#credentials.get(name)?.consumer ?? shown.consumer
    const isKnown = owner !== UNKNOWN_CONSUMER
    switch (outcome.status) {
      case 'admitted':
        if (isKnown) this.#credentials.set(name, { plan: outcome.plan, consumer: owner })
        this.#blocked.delete(owner)
        break
      case 'blocked':
        if (isKnown) this.#blocked.set(owner, true)
        break
      case 'unknown-credential':
        this.#credentials.delete(name)
        break
      // A refusal says nothing about the credential that its plan would not, and nothing about blocks.
    }
  }
}
