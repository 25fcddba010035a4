/**
 * The counters of an isolate that are not yet in the store: plain data, bounded. A counter is a text, which is also its field in
 * the store (src/metrics/flush.ts). Its words come from the config and from closed lists only:
 *
 *     request <outcome> <cause> <route>              one for each request
 *     rule <outcome> <rule> <route> <plan>           one for each rule that applied: allowed, limited, and as a shadow
 *                                                    shadow_allowed, shadow_limited
 *     candidate <agreed|disagreed> <rule> <route> <plan>   beside it, where the rule it would replace applied too
 *     without-trip <refusals|leases> <route>         of these requests, those that no trip to the store was made for
 *     lost                                           requests whose counters may not have arrived
 *
 * `-` stands for none; no name begins with it. A rule is counted by its own verdict, also when another rule refused the request.
 * Refused guesses count only the rules `on: 'auth-failure'`, and a request that no rule decided (401 without a trip, 403)
 * counts none.
 */
import type { Observation } from './observation.ts'

export type Batch = readonly (readonly [field: string, by: number])[]

export interface Counters {
  readonly size: number
  record(observation: Observation): void
  /** Removes and returns the oldest counters. */
  take(most: number): Batch
  /** Counts a batch again that did not arrive. */
  putBack(batch: Batch): void
  /** Counts the requests of a batch that may not have arrived as lost. */
  lose(batch: Batch): void
}

export const LOST = 'lost'
const NONE = '-'
/** Replaces the words of counters for which there is no room. */
const OTHER = '~'

/** More than any known config needs: rules × routes × plans that an isolate counts between two flushes. */
const MOST_FIELDS = 2000

export function createCounters(mostFields = MOST_FIELDS): Counters {
  const counts = new Map<string, number>()

  function add(field: string, by: number): void {
    const hasRoom = counts.size < mostFields || counts.has(field)
    const place = hasRoom ? field : withoutLabels(field)
    counts.set(place, (counts.get(place) ?? 0) + by)
  }

  return {
    get size() {
      return counts.size
    },

    record({ outcome, cause = NONE, from, route = NONE, plan = NONE, verdicts }) {
      add(`request ${outcome} ${cause} ${route}`, 1)
      if (from) add(`without-trip ${from} ${route}`, 1)
      for (const { rule, mode, allowed, agrees } of verdicts) {
        const labels = `${rule.name} ${route} ${plan}`
        add(`rule ${mode === 'shadow' ? 'shadow_' : ''}${allowed ? 'allowed' : 'limited'} ${labels}`, 1)
        if (agrees !== undefined) add(`candidate ${agrees ? 'agreed' : 'disagreed'} ${labels}`, 1)
      }
    },

    take(most) {
      const batch = [...counts].slice(0, most)
      for (const [field] of batch) counts.delete(field)
      return batch
    },

    putBack(batch) {
      for (const [field, by] of batch) add(field, by)
    },

    lose(batch) {
      const requests = batch.filter(([field]) => field === LOST || field.startsWith('request '))
      const sum = requests.reduce((sum, [, by]) => sum + by, 0)
      if (sum > 0) add(LOST, sum)
    },
  }
}

/** Its kind and outcome stay, so that sums stay right. */
function withoutLabels(field: string): string {
  return field
    .split(' ')
    .map((word, i) => (i < 2 ? word : OTHER))
    .join(' ')
}
