/**
 * Counters of an isolate that are not in the store yet: plain data, bounded. A counter is named by a text, which is also
 * the name of its field in the store (src/metrics/flush.ts). The words of the text come only from the config and from fixed lists:
 *
 *     request <outcome> <cause> <route>              one for each request
 *     rule <outcome> <rule> <route> <plan>           one for each rule that applied: allowed, limited, or for a shadow rule
 *                                                    shadow_allowed, shadow_limited. For a test caller with ` test` at its end
 *     candidate <agreed|disagreed> <rule> <route> <plan>   one more for a candidate, if the rule that it would replace applied too. As above
 *     without-trip <refusals|leases> <route>         requests that were decided without a trip to the store
 *     critical <within|over> <class>                 requests of critical classes; over: a shedder would have refused others
 *     test <outcome>                                 requests of test callers
 *     lost                                           requests whose counters may not have arrived
 *
 * Calls of limits by name are counted apart from requests. Their rules have the names of live switches:
 *
 *     call <outcome> <cause> <limit>                 one for each call
 *     rule <outcome> <limit>/<rule> - -              one for each rule that took part
 *     call-without-trip <refusals|leases> <limit>    calls that were decided without a trip to the store
 *     lost-calls                                     calls whose counters may not have arrived
 *
 * Of both, with limits by name as `<limit>/<rule>`:
 *
 *     reservation <made|settled|late> <rule>         what becomes of reservations (src/limiter/reservations/reservation-statistics.ts)
 *     unsettled <rule>                               settlements that were given up
 *     units <reserved|cost|debt> <rule>              units of reservations
 *
 * src/metrics/measurements.ts has the counters that only metrics need.
 *
 * `-` stands for a missing word; no name begins with it. Each rule is counted by its own verdict, even if another
 * rule refused the request. A request with a bad credential counts only rules with `on: 'auth-failure'`. A request
 * that no rule decided (401 without a trip, 403) counts no rule.
 */
import type { Counted } from './observation.ts'

export type Batch = readonly (readonly [field: string, by: number])[]

/** What counts the requests and the calls of a batch that may not have arrived. */
const LOST = { request: 'lost', call: 'lost-calls' }
const NONE = '-'
/** Replaces the labels of a counter when there is no room for another one. */
const OTHER = '~'

/** More than any known config needs: rules × routes × plans counted by one isolate between two flushes. */
const MAX_FIELDS = 2000

export type Counters = ReturnType<typeof createCounters>

export function createCounters(maxFields = MAX_FIELDS) {
  const counts = new Map<string, number>()

  function add(field: string, by: number): void {
    const hasRoom = counts.size < maxFields || counts.has(field)
    const counter = hasRoom ? field : dropLabels(field)
    counts.set(counter, (counts.get(counter) ?? 0) + by)
  }

  return {
    get size() {
      return counts.size
    },

    record({
      limit,
      outcome,
      cause = NONE,
      from,
      route = NONE,
      plan = NONE,
      mode,
      critical,
      verdicts,
    }: Counted) {
      const isCall = limit !== undefined
      add(`${isCall ? 'call' : 'request'} ${outcome} ${cause} ${limit ?? route}`, 1)
      if (mode) add(`${mode} ${outcome}`, 1)
      if (critical) add(`critical ${critical.isOver ? 'over' : 'within'} ${critical.name}`, 1)
      if (from) add(`${isCall ? 'call-' : ''}without-trip ${from} ${limit ?? route}`, 1)
      const ofCaller = mode ? ` ${mode}` : ''
      for (const { rule, mode, allowed, agrees } of verdicts) {
        const labels = `${isCall ? `${limit}/` : ''}${rule.name} ${route} ${plan}${ofCaller}`
        add(`rule ${mode === 'shadow' ? 'shadow_' : ''}${allowed ? 'allowed' : 'limited'} ${labels}`, 1)
        if (agrees !== undefined) add(`candidate ${agrees ? 'agreed' : 'disagreed'} ${labels}`, 1)
      }
    },

    all: (): Batch => [...counts],

    add,

    /** Removes and returns up to `max` counters, the oldest first. */
    take(max: number): Batch {
      const batch = [...counts].slice(0, max)
      for (const [field] of batch) counts.delete(field)
      return batch
    },

    /** Adds a batch again that has not arrived. */
    putBack(batch: Batch) {
      for (const [field, by] of batch) add(field, by)
    },

    /** Counts the requests and calls of a batch as lost, because the batch may not have arrived. */
    countAsLost(batch: Batch) {
      for (const [kind, lost] of Object.entries(LOST))
        for (const [field, by] of batch) if (field === lost || field.startsWith(`${kind} `)) add(lost, by)
    },
  }
}

/** Keeps the kind and the outcome, so that sums stay correct. */
function dropLabels(field: string): string {
  return field
    .split(' ')
    .slice(0, 5)
    .map((word, i) => (i < 2 ? word : OTHER))
    .join(' ')
}
