/**
 * What the workers of `serve` have sent about callers, for workers that start later: a worker that takes the place of another one during
 * an outage cannot ask the store. Bounded in number; the latest are kept.
 */
import { type AgedNews, type CallerNews, memoryKey } from '../../credentials/caller-memory.ts'

/** As many as a worker remembers, of each kind. About 600 bytes each. */
const MAX_HEARD = 10_000

type Heard = Map<string, { news: CallerNews; heardAt: number }>

export interface HeardCallers {
  add(news: CallerNews): void
  all(): AgedNews[]
}

/** @param now monotonic (ms) */
export function createHeardCallers(now: () => number = () => performance.now()): HeardCallers {
  // Apart, so that many admissions do not evict a revocation.
  const admitted: Heard = new Map()
  const unknown: Heard = new Map()
  const blocked: Heard = new Map()
  function put(heard: Heard, key: string, news: CallerNews): void {
    // The key moves to the end.
    heard.delete(key)
    heard.set(key, { news, heardAt: now() })
    if (heard.size > MAX_HEARD) heard.delete(heard.keys().next().value!)
  }
  return {
    add(news) {
      const { credential, answer } = news
      const { status, consumer = credential.consumer } = answer
      const key = memoryKey(credential)
      if (status === 'blocked') return put(blocked, consumer, news)
      const [to, from] = status === 'admitted' ? [admitted, unknown] : [unknown, admitted]
      put(to, key, news)
      from.delete(key)
      if (status === 'admitted') blocked.delete(consumer)
    },
    // Blocks come last, because an admission ends a block.
    all: () =>
      [admitted, unknown, blocked].flatMap(heard =>
        Array.from(heard.values(), ({ news, heardAt }) => ({ ...news, ageMs: now() - heardAt })),
      ),
  }
}
