/** The schema of `shedding`. Messages as in rule-schema.ts. */
import * as v from 'valibot'
import { adaptive } from './adaptive-schema.ts'
import { match } from './match-schema.ts'
import { modes } from './rule-schema.ts'
import { duration, flag, headerName, name, oneOf, record, settings, share, units } from './values.ts'

const CLASS = "is not a class. Write { name: 'critical', match: { methods: ['POST'] } }."

const trafficClass = settings(
  {
    /** The name of the class in logs, statistics and `reserved`. Unique. */
    name: name('class name'),
    /**
     * Which requests belong to the class. A request belongs to the first class that it matches. Exactly one class has no `match`: it
     * gets every request that matches no other class. While an isolate does not know the plan of a caller, the caller's requests belong to the most important class that any plan
     * would give them.
     */
    match: v.optional(match),
    /**
     * With `true`, no shedder and no adaptive limit refuses its requests. They are counted, so the other classes get less room. Not for all
     * classes, and only for the most important ones. While an isolate does not know the plan of a caller, a full capacity takes a second trip.
     * Default: they can be refused.
     */
    critical: v.optional(flag),
  },
  CLASS,
)

const { mode, enforce, onStoreFailure } = modes

const fleetUsage = settings(
  {
    /** How many requests the whole fleet can have in flight. */
    capacity: units(2, 1e6),
    /**
     * Shares of the capacity that are reserved for a class and the more important ones, as in `{ critical: 0.2 }`. Less important
     * classes can use only the rest. The most important class can use the whole capacity. Default: a fifth for the most important class.
     */
    reserved: v.optional(
      record(name('class name'), share(0), 'is not an object. Write it like { critical: 0.2 }.'),
    ),
    /** The capacity follows the latency and the failures of the origin, up to `capacity`. Default: it is fixed. */
    adaptive: v.optional(adaptive),
    /** How long the requests in flight of an isolate that has died still count, from `'1s'` to `'1h'` (default `'15s'`). */
    ttl: v.optional(duration(1e6, 3600e6, "from '1s' to '1h'")),
    /** `enforce` (default), `shadow` (counts, but refuses nothing), or `off`. */
    mode,
    /** The share of callers for which it is enforced, 0 to 1 (default `1`). For the others it is a shadow. */
    enforce,
    /** As for rules: `'local'`, `'closed'` or `'open'`. Default: that of the config. */
    onStoreFailure,
  },
  'is not an object. Write it like { capacity: 400 }.',
)

const SIGNAL_SOURCES = ['header', 'push', 'in-flight', 'event-loop', 'cpu'] as const

const AGGREGATE = "is not a way to sum up machines. Write 'mean', 'max' or { busyShare: 0.5 }."

const busyMachines = settings(
  {
    /** The share of the machines whose utilization must be that high, 0.01 to 1. */
    busyShare: share(0.01),
  },
  AGGREGATE,
)

export const PACES = ['proportional', 'full'] as const
export type Pace = (typeof PACES)[number]

const aggregate = v.lazy(input =>
  typeof input === 'object' ? busyMachines : v.picklist(['mean', 'max'], AGGREGATE),
)

const workerUtilization = settings(
  {
    /**
     * Where the utilization, a number from 0 to 1, is read: `header`, a response header of the origin; `push`, values that the origin's
     * machines send to `POST /_sluice/utilization`; `in-flight`, requests in flight ÷ `fleetUsage.capacity`. The highest value counts.
     * Outside Workers also `event-loop` and `cpu`, of each process by itself (docs/load-shedding.md).
     */
    signals: v.pipe(
      v.array(oneOf(SIGNAL_SOURCES, 'is not a signal'), "is not a list. Write it like ['header']."),
      v.minLength(1, "is empty. Name a signal, as in ['header']."),
    ),
    /** The response header of the origin, as in `x-utilization: 0.83` (default `'x-utilization'`). Callers do not get it. */
    header: v.optional(headerName),
    /**
     * What counts of the machines that push: their `mean` (default); `max`, the busiest one; `{ busyShare: 0.5 }`, the utilization that half of
     * them reach, so that shedding increases while at least half are above `high`.
     */
    aggregate: v.optional(aggregate),
    /** Above this utilization, shedding increases (default `0.8`). */
    high: v.optional(share(0)),
    /** Below this utilization, shedding decreases (default `0.7`). Between the two, it stays the same. */
    low: v.optional(share(0)),
    /**
     * How fast shedding changes: `proportional` (default), the faster, the closer the utilization is to 1 or 0; `full`, always as fast as at
     * 1 or 0. `full` recovers sooner from a sudden loss of capacity, but refuses and admits callers in turn more often.
     */
    pace: v.optional(oneOf(PACES, 'is not a pace')),
    /** How long a utilization of 1 lasts before the first request is shed (default `'28s'`). A lower one takes longer. */
    after: v.optional(duration(1e6, 3600e6, "from '1s' to '1h'")),
    /**
     * How long a utilization of 1 lasts from then on, until all classes but the most important one are shed (default `'2m'`). At a
     * utilization of 0, or without a signal, shedding decreases at the same pace.
     */
    within: v.optional(duration(2e6, 3600e6, "from '2s' to '1h'")),
    /** How long the last value from a machine stays valid after the push (default `'30s'`). */
    staleAfter: v.optional(duration(1e6, 3600e6, "from '1s' to '1h'")),
    /** `enforce` (default), `shadow` (reports what it would have shed), or `off`. */
    mode,
    /** The share of callers for which it is enforced, 0 to 1 (default `1`). For the others it is a shadow. */
    enforce,
  },
  "is not an object. Write it like { signals: ['header'] }.",
)

/** The setting `shedding`: classes of traffic, their importance, and when the less important ones are refused. */
export interface SheddingInput extends v.InferInput<typeof shedding> {}

export const shedding = settings(
  {
    /** Classes of traffic. A request belongs to the first that it matches. */
    classes: v.pipe(
      v.array(
        trafficClass,
        `is not a list of classes. Write [{ name: 'critical', match: { … } }, { name: 'other' }].`,
      ),
      v.minLength(2, 'has fewer than two classes: there is nothing to choose from. Add one.'),
      v.maxLength(16, 'has more than 16 classes. Use fewer.'),
    ),
    /** The names of all classes, the most important first. Default: the order of `classes`. */
    importance: v.optional(
      v.array(name('class name'), "is not a list of class names. Write ['critical', 'other']."),
    ),
    /**
     * Fleet usage: when the share of a class is full, its requests get a 503, so that the more important classes have room.
     * Default: none.
     */
    fleetUsage: v.optional(fleetUsage),
    /** Worker utilization: while the origin is too busy, a growing share of the least important requests gets a 503. Default: none. */
    workerUtilization: v.optional(workerUtilization),
  },
  "is not an object. Write it like { classes: [{ name: 'critical', match: { … } }, { name: 'other' }], fleetUsage: { capacity: 400 } }.",
)
