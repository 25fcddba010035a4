/**
 * What an isolate measures for metrics, beside the counters of the statistics. Plain data, bounded, and sent with the counters:
 *
 *     usage <rule>                      the highest share of the rule's limit that any identity has used (millionths), with the last
 *                                       minutes. Of a limit by name: `<limit>/<rule>`
 *     usage <rule> <reserved|debt>      the highest share of it that one request has reserved, and the highest debt as a share of it
 *     time-<decision|origin> <bucket>   decisions and responses of the origin, by the bucket of their duration (ms); `sum`: all durations
 *     store <trips|commands>            HTTP requests to the store, and the commands in them as Upstash bills them, at most
 *     breaker opened                    how often the breaker of an isolate has opened
 *
 * All are in the record of all time alone. The fields of sums have two words, so that a full record keeps them apart.
 */
import type { Store, StoreCall } from '../store/store.ts'
import type { Chore } from '../trips/scheduler.ts'
import type { Batch, Counters } from './counters.ts'
import type { Counted } from './observation.ts'

/** The upper bounds of the buckets (ms). The last bucket has no bound. */
export const BUCKETS_MS = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000] as const

export const USAGE_UNITS = 1e6

/** What is sent with a batch of counters. */
export interface Measured {
  usage: Batch
  totals: Batch
}

export type Measurements = ReturnType<typeof createMeasurements> & {
  /** Pushes them to a collector (otlp.ts). */
  exporter?: { counters: Counters; chore: Chore; push(): Promise<void> }
}

/** Creates the measurements of an isolate. */
export function createMeasurements() {
  const times = { decision: createTimes('decision'), origin: createTimes('origin') }
  /** By the name of the rule. */
  const usage = new Map<string, number>()
  const events = { trips: 0, commands: 0, opened: 0 }
  /** What has not arrived. */
  let returned: Batch = []
  let isBreakerOpen = false

  const noteUsage = (rule: string, share: number) => {
    if (share > (usage.get(rule) ?? -1)) usage.set(rule, share)
  }

  function takeEvents(): Batch {
    const { trips, commands, opened } = events
    Object.assign(events, { trips: 0, commands: 0, opened: 0 })
    const all = [
      ...returned,
      ['store trips', trips],
      ['store commands', commands],
      ['breaker opened', opened],
    ] as const
    returned = []
    return all.filter(([, by]) => by > 0)
  }

  return {
    record({ limit, cause, storeMs, verdicts }: Counted): void {
      if (storeMs !== undefined) times.decision.add(storeMs)
      // Without the store, an isolate knows only its own counts.
      if (cause !== undefined) return
      for (const { rule, remaining, reserved = 0, debt } of verdicts) {
        if (remaining === undefined) continue
        // What remains is a part of the burst. Only an adaptive limit can be below that of the config.
        const whole =
          rule.adaptiveShare === undefined ? rule.quota!.burst : (rule.exceedableLimit ?? rule.limit!)
        const left = rule.exceedableLimit === undefined ? remaining : whole - (rule.limit! - remaining)
        const name = limit === undefined ? rule.name : `${limit}/${rule.name}`
        noteUsage(name, Math.min(Math.max(0, 1 - left / whole), 1))
        if (debt === undefined) continue
        noteUsage(`${name} reserved`, reserved / whole)
        noteUsage(`${name} debt`, debt / whole)
      }
    },

    /** @param ms from sending a request to the origin until the head of its response */
    recordOrigin: times.origin.add,

    /** The store, with its trips counted. */
    watch: (store: Store): Store => ({
      ...store,
      run(calls, listener) {
        events.trips += 1
        for (const call of calls) events.commands += mostCommandsOf(call)
        return store.run(calls, listener)
      },
      ping() {
        events.trips += 1
        events.commands += 1
        return store.ping()
      },
    }),

    noteStoreChange(isOpen: boolean): void {
      isBreakerOpen = isOpen
      if (isOpen) events.opened += 1
    },

    isBreakerOpen: () => isBreakerOpen,

    /** Removes and returns everything. */
    take(): Measured {
      const measured = {
        usage: [...usage].map(([rule, share]) => [`usage ${rule}`, Math.round(share * USAGE_UNITS)] as const),
        totals: sumOf([...times.decision.take(), ...times.origin.take(), ...takeEvents()]),
      }
      usage.clear()
      return measured
    },

    /** Adds again what has not arrived. */
    putBack({ usage, totals }: Measured): void {
      for (const [field, share] of usage) noteUsage(field.slice('usage '.length), share / USAGE_UNITS)
      returned = [...returned, ...totals]
    },
  }
}

/** The batch with each field once. */
function sumOf(batch: Batch): Batch {
  const sums = new Map<string, number>()
  for (const [field, by] of batch) sums.set(field, (sums.get(field) ?? 0) + by)
  return [...sums]
}

function createTimes(what: string) {
  const counts = new Array<number>(BUCKETS_MS.length + 1).fill(0)
  let sum = 0
  return {
    add(ms: number): void {
      let bucket = 0
      while (ms > BUCKETS_MS[bucket]!) bucket += 1
      counts[bucket]! += 1
      sum += ms
    },
    take(): Batch {
      const fields = counts.flatMap((count, i): Batch => (count > 0 ? [[timeField(what, i), count]] : []))
      const taken: Batch = fields.length > 0 ? [...fields, [`time-${what} sum`, Math.round(sum)]] : []
      counts.fill(0)
      sum = 0
      return taken
    },
  }
}

/** The field of a bucket. @param bucket its place; after the last bound: `inf` */
export const timeField = (what: string, bucket: number) => `time-${what} ${BUCKETS_MS[bucket] ?? 'inf'}`

/** A script reads the time and all states at once, and writes each state and each signal at most once. Statistics read and write each record, but one of eight days before. */
function mostCommandsOf(call: StoreCall): number {
  if (!('keys' in call)) return 1
  let most = 3
  for (const key of call.keys) {
    if (key.includes(':state') || key.includes('{signal')) most += 1
    else if (key.includes('{stats}:d:')) most += 1
    else if (key.includes('{stats}')) most += 2
  }
  return most
}
