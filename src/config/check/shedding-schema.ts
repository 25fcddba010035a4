/** How traffic is shed when the fleet is full. Messages as in rule-schema.ts. */
import * as v from 'valibot'
import { adaptive } from './adaptive-schema.ts'
import { match } from './match-schema.ts'
import { modes } from './rule-schema.ts'
import { duration, headerName, name, record, settings, share, units } from './values.ts'

const CLASS = "is not a class. Write { name: 'critical', match: { methods: ['POST'] } }."

const trafficClass = settings(
  {
    /** Names the class in logs, statistics and `reserved`. Unique. */
    name: name('class name'),
    /**
     * Which requests it has. Exactly one class has no `match`: it has every request that matches no other class.
     * While the plan of a caller is not known to an isolate, its requests are of the most important class that they can be of.
     */
    match: v.optional(match),
  },
  CLASS,
)

const { mode, enforce, onStoreFailure } = modes

const fleetUsage = settings(
  {
    /** How many requests the whole fleet can have in flight. */
    capacity: units(2, 1e6),
    /**
     * What a class has for itself and the more important ones, as shares of the capacity, as in `{ critical: 0.2 }`. Less important
     * classes can use the rest, the more important ones everything. Default: a fifth for the first class.
     */
    reserved: v.optional(
      record(name('class name'), share(0), 'is not an object. Write it like { critical: 0.2 }.'),
    ),
    /** The capacity follows how fast the origin answers and whether it fails, up to `capacity`. Default: it is fixed. */
    adaptive: v.optional(adaptive),
    /** When what a dead isolate had in flight is free again, from `'1s'` to `'1h'` (default `'15s'`). */
    ttl: v.optional(duration(1e6, 3600e6, "from '1s' to '1h'")),
    /** `enforce` (default), `shadow` (counts and refuses none), or `off`. */
    mode,
    /** The share of callers for whom it is enforced, 0 to 1 (default `1`); for the others it is a shadow. */
    enforce,
    /** As for rules: `'local'`, `'closed'` or `'open'`. Default: that of the config. */
    onStoreFailure,
  },
  'is not an object. Write it like { capacity: 400 }.',
)

export const SIGNAL_SOURCES = ['header', 'push', 'in-flight'] as const

const workerUtilization = settings(
  {
    /**
     * Where the utilization is read, from 0 to 1: a response `header` of the origin; `push`, what the origin's machines send to
     * `POST /_sluice/utilization`; `in-flight`, requests in flight ÷ `fleetUsage.capacity`. Of several, the highest counts.
     */
    signals: v.pipe(
      v.array(
        v.picklist(SIGNAL_SOURCES, "is not a signal. Use 'header', 'push' or 'in-flight'."),
        "is not a list. Write it like ['header'].",
      ),
      v.minLength(1, "is empty. Name a signal, as in ['header']."),
    ),
    /** The response header of the origin, as in `x-utilization: 0.83` (default `'x-utilization'`). Callers do not get it. */
    header: v.optional(headerName),
    /** From this utilization on, more is shed (default `0.9`). */
    high: v.optional(share(0)),
    /** Up to this utilization, less is shed (default `0.7`). Between the two nothing changes. */
    low: v.optional(share(0)),
    /** How long the utilization is high before the first request is shed (default `'28s'`). */
    after: v.optional(duration(1e6, 3600e6, "from '1s' to '1h'")),
    /** How long it is high until all classes but the first are shed (default `'2m'`). It takes as long to give everything back. */
    within: v.optional(duration(2e6, 3600e6, "from '2s' to '1h'")),
    /** When a machine that sends no more is left out of `push` (default `'30s'`). */
    staleAfter: v.optional(duration(1e6, 3600e6, "from '1s' to '1h'")),
    /** `enforce` (default), `shadow` (says what it would have shed), or `off`. */
    mode,
    /** The share of callers for whom it is enforced, 0 to 1 (default `1`); for the others it is a shadow. */
    enforce,
  },
  "is not an object. Write it like { signals: ['header'] }.",
)

export interface SheddingInput extends v.InferInput<typeof shedding> {}

export const shedding = settings(
  {
    /** Classes of traffic, the most important first. */
    classes: v.pipe(
      v.array(
        trafficClass,
        `is not a list of classes. Write [{ name: 'critical', match: { … } }, { name: 'other' }].`,
      ),
      v.minLength(2, 'has fewer than two classes: there is nothing to choose from. Add one.'),
      v.maxLength(16, 'has more than 16 classes. Use fewer.'),
    ),
    /** Fleet usage: when the part of a class is full, its requests get a 503, so that the more important ones have room. Default: none. */
    fleetUsage: v.optional(fleetUsage),
    /** Worker utilization: while the origin is too busy, the least important requests get a 503, slowly more. Default: none. */
    workerUtilization: v.optional(workerUtilization),
  },
  "is not an object. Write it like { classes: [{ name: 'critical', match: { … } }, { name: 'other' }], fleetUsage: { capacity: 400 } }.",
)
