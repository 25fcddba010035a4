/**
 * Credentials that this isolate has seen let in, for the time when the store cannot be asked: whose they are, on which
 * plan, and who is blocked. Only what the store has vouched for gets in, so nobody can push others out with made-up
 * keys. Plain data, bounded in number and time.
 */
import QuickLRU from 'quick-lru'

/** What the store last said of a credential. */
export interface Seen {
  plan: string
  /** Where only the store knew. */
  consumer?: string
  isBlocked?: boolean
}

/** Some 300 bytes each; up to twice as many are kept. */
const MOST_SEEN = 10_000

export class SeenCredentials {
  readonly #seen: QuickLRU<string, Seen>

  constructor({ seenForMs }: { seenForMs: number }) {
    this.#seen = new QuickLRU({ maxSize: MOST_SEEN, maxAge: seenForMs })
  }

  recall(digest: string): Seen | undefined {
    return this.#seen.get(digest)
  }

  learn(digest: string, outcome: { status: string; plan: string; consumer?: string }): void {
    const { status, plan, consumer } = outcome
    // A refusal does not say whether somebody is blocked.
    if (status === 'admitted') this.#seen.set(digest, { plan, ...(consumer !== undefined && { consumer }) })
    else if (status === 'blocked') this.#seen.set(digest, { plan: '', isBlocked: true })
    else if (status === 'unknown-credential') this.#seen.delete(digest)
  }
}
