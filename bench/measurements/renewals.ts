/**
 * Measures what an isolate sends and computes to keep units in flight: messages, HTTP requests and CPU time, by the number of streams. Each
 * stream is the only unit of its identity.
 */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { ALL_ALGORITHMS } from '../../src/algorithms/all.ts'
import { detached } from '../../src/background.ts'
import type { Timer } from '../../src/clock.ts'
import { compileLimitRule } from '../../src/config/compile-rule.ts'
import { createHoldingsKeeper } from '../../src/limiter/units/keep-holdings.ts'
import { consumerStateKey } from '../../src/store/keys.ts'
import type { ScriptCall, Store } from '../../src/store/store.ts'
import { upstashStore } from '../../src/store/upstash.ts'
import { bound } from '../../test/support/bound.ts'
import { UNBOUNDED_LOG } from '../../test/support/log.ts'
import { tripsOn } from '../../test/support/trips.ts'
import { VirtualClock } from '../../test/support/virtual-clock.ts'
import { counted, measured, measuredRatio } from '../figures.ts'
import { inRounds, median } from '../measure.ts'
import { type Findings, neededRow, roundsRow } from '../report.ts'

const STREAMS = [10, 100, 1000, 10_000] as const
/** The others are compared with it. */
const BASE = 100
const COMPARED = [1000, 10_000] as const

const ROUNDS = 1
const CPU = { unit: 'µs', digits: 2 }
const TTL_MS = 15_000
/** One message for each identity is needed in this time. */
const INTERVAL_MS = TTL_MS / 3
/** Each measurement has as many streams times intervals, so that all take about as long. */
const RENEWALS = 40_000
const TRIP_MS = 20

const MOST_MESSAGES = 1.2
const MOST_CPU = 1.5

interface Kept {
  /** Messages sent, per needed message. */
  messages: number
  /** HTTP requests per `INTERVAL_MS`. */
  requests: number
  largestRequest: number
  /** Per stream and second (µs). */
  cpu: number
}

const nameOf = (streams: number) => `${streams.toLocaleString('en')} streams`
const bookkeepingOf = (streams: number) => `${nameOf(streams)}, without the client`

export async function renewals(): Promise<Findings> {
  const tasks = STREAMS.flatMap(streams => [
    [nameOf(streams), () => throughClient(streams)] as const,
    [bookkeepingOf(streams), () => keep(streams, calls => calls.map(() => JSON.parse(REPLY)))] as const,
  ])
  for (const [, warmUp] of tasks) await warmUp()
  const rounds = await inRounds(ROUNDS, Object.fromEntries(tasks))
  const valuesOf = (name: string, what: keyof Kept) => rounds[name]!.map(kept => kept[what])
  const mostOf = (streams: number, what: keyof Kept) => Math.max(...valuesOf(nameOf(streams), what))
  const most = Math.max(...STREAMS.map(streams => mostOf(streams, 'messages')))
  const cpu = (name: (streams: number) => string, streams: number) => {
    const [own, base] = [valuesOf(name(streams), 'cpu'), valuesOf(name(BASE), 'cpu')]
    return [measured(own, CPU), measuredRatio(own, base)]
  }
  return {
    rows: [
      neededRow(`messages that renew ${STREAMS[0]} to ${nameOf(STREAMS.at(-1)!)}, the most`, most, {
        ...{ most: MOST_MESSAGES, per: 'per identity and third of the ttl' },
      }),
      ...COMPARED.map(streams => {
        const [own, base] = [streams, BASE].map(count => valuesOf(nameOf(count), 'cpu')) as [
          number[],
          number[],
        ]
        return roundsRow(
          `CPU to renew ${nameOf(streams)}, per stream and second`,
          [nameOf(BASE), own, base],
          { ...CPU, most: MOST_CPU },
        )
      }),
    ],
    tables: [
      {
        title: 'Renewals: one isolate, by its streams in flight',
        head: [
          'streams',
          'messages per needed message',
          'HTTP requests per third of the ttl',
          'most messages in one',
          'CPU per stream and second',
          `÷ ${nameOf(BASE)}`,
          'CPU without the client',
          `÷ ${nameOf(BASE)}`,
        ],
        rows: STREAMS.map(streams => [
          streams.toLocaleString('en'),
          counted(mostOf(streams, 'messages'), { digits: 2 }),
          counted(median(valuesOf(nameOf(streams), 'requests')), { digits: 1 }),
          counted(mostOf(streams, 'largestRequest')),
          ...cpu(nameOf, streams),
          ...cpu(bookkeepingOf, streams),
        ]),
      },
    ],
    rounds: [
      {
        title: 'CPU of renewals per stream and second, µs',
        columns: Object.fromEntries(tasks.map(([name]) => [name, valuesOf(name, 'cpu')])),
      },
    ],
    notes: [
      `Renewals: one isolate under a rule \`concurrency\` with a \`ttl\` of ${TTL_MS / 1000} s. Each stream is the only unit of its identity. The ` +
        `streams begin one after the other within ${INTERVAL_MS / 1000} s, and are measured from then on. A message is needed once per stream ` +
        `and third of the ttl. With each number of streams, ${RENEWALS.toLocaleString('en')} messages are needed in each round.`,
      'Renewals: the time is simulated, so timers are never late. The client of the store is that of ' +
        `production, with its deadlines and its JSON. In place of \`fetch\`, the process itself answers after ${TRIP_MS} ms of that time, with a ` +
        'reply as Redis sends it, so neither sockets nor Redis are part of the CPU time. The timers of the simulation and the garbage ' +
        'collection are. "Without the client": only what grows with the streams, which are messages, replies and timers. The cost of an ' +
        'HTTP request is then left out, which many streams share.',
    ],
  }
}

/** Answers calls within the process. */
type Answer = (calls: readonly ScriptCall[]) => readonly unknown[] | Promise<readonly unknown[]>

/** The reply of the script for messages (sync.ts): the time and the units. Another form would count as lost, and all would be sent again. */
const REPLY = '[1800000000000000,1]'

/** Keeps streams in flight with the client of production. */
async function throughClient(streams: number): Promise<Kept> {
  const { fetch } = globalThis
  let text = ''
  // The client calls it before it first waits, so the text is that of its own calls.
  const answer = () => {
    const reply = text
    return { ok: true, text: async () => reply }
  }
  globalThis.fetch = (async () => answer()) as unknown as typeof fetch
  const client = upstashStore({
    ...{ url: 'https://store.test', token: 'token', deadlineMs: 250, keyLocking: false },
  })
  try {
    return await keep(streams, calls => {
      const results = calls.map(() => `{"result":${REPLY}}`)
      text = results.length === 1 ? results[0]! : `[${results}]`
      return client.run(calls)
    })
  } finally {
    globalThis.fetch = fetch
  }
}

/** Keeps streams in flight. */
async function keep(streams: number, answer: Answer): Promise<Kept> {
  const clock = new TimerClock()
  let requests = 0
  let messages = 0
  let largestRequest = 0
  const store: Store = {
    ping: async () => {},
    async run(calls) {
      const scripts = calls as readonly ScriptCall[]
      const count = scripts.reduce((sum, { keys }) => sum + keys.length, 0)
      requests += 1
      messages += count
      largestRequest = Math.max(largestRequest, count)
      await new Promise<void>(resolve => clock.timer(TRIP_MS, resolve))
      return [...(await answer(scripts))]
    },
  }
  const keeper = createHoldingsKeeper({
    ...{ now: () => clock.nowMs, timer: clock.timer },
    ...{ log: UNBOUNDED_LOG, script: () => NO_SCRIPT },
  })
  const trips = tripsOn(store, [keeper.rider], { now: () => clock.nowMs, timer: clock.timer })
  const startedAt = clock.nowMs
  for (let i = 0; i < streams; i++) {
    const rules = [bound(RULE, consumerStateKey(`caller-${i}`), 1, clock.nowMs)]
    const permits = keeper.stakeOf({ evaluation: { rules } })!
    permits.resolve({ status: 'admitted', verdicts: [ADMITTED], at: 0 } as never)
    permits.keep(trips, detached)
    await clock.run(startedAt + ((i + 1) * INTERVAL_MS) / streams)
  }

  const intervals = RENEWALS / streams
  ;[requests, messages, largestRequest] = [0, 0, 0]
  // The garbage of other measurements is not part of this one.
  collectGarbage()
  const before = process.cpuUsage()
  await clock.run(clock.nowMs + intervals * INTERVAL_MS)
  const { user, system } = process.cpuUsage(before)
  return {
    messages: messages / RENEWALS,
    requests: requests / intervals,
    largestRequest,
    cpu: (user + system) / (RENEWALS * (INTERVAL_MS / 1000)),
  }
}

/** Simulated time, with one event for all timers of a millisecond. On Workers, timers are not in the heap of the isolate, so these are small. */
class TimerClock extends VirtualClock {
  readonly #timers = new Map<number, (() => void)[]>()

  /** Truncates, as real platforms do. */
  readonly timer: Timer = (ms, run) => {
    const at = Math.floor(this.nowMs) + Math.trunc(ms)
    const timers = this.#timers.get(at)
    if (timers) timers.push(run)
    else {
      this.#timers.set(at, [run])
      this.after(at - this.nowMs, () => this.#fire(at))
    }
    return NEVER_CANCELLED
  }

  #fire(at: number): void {
    const timers = this.#timers.get(at)!
    this.#timers.delete(at)
    for (const run of timers) run()
  }
}
/** No stream ends. */
const NEVER_CANCELLED = () => {}

setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void

const NO_SCRIPT = {
  plain: { source: '', sha1: '0'.repeat(40) },
  keyLocking: { source: '', sha1: '0'.repeat(40) },
}
const RULE = compileLimitRule(
  { name: 'held', algorithm: 'concurrency', limit: 1, ttl: `${TTL_MS}ms` },
  ALL_ALGORITHMS,
)
/** Far from the limit, so that no end is reported at once. */
const ADMITTED = { rule: RULE, allowed: true, remaining: 1 }
