/**
 * examples/llm under load: hundreds of calls at once through three Workers, or three workers of `serve`, one of which is killed. The books
 * agree to the token: each call has an estimate of its own, so the reservations that are left name the calls of killed Workers that were not
 * settled.
 *
 * `SOAK=1 LLM_CALLS=100000 LLM_AT_ONCE=10000 LLM_KILLS=8` makes a larger run, whose Workers are killed at random times and replaced.
 */
import { Agent, request } from 'node:http'
import { setTimeout } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { RunningWorker } from '../../src/node/start/worker.ts'
import { type LlmBed, startLlmBed, tokensOf, type Variant } from '../support/llm-bed.ts'
import type { LlmPlan } from '../support/llm-origin.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { type Random, randomFrom, SEED } from '../support/random.ts'
import { hasRedisServer } from '../support/servers.ts'

const { SOAK, LLM_CALLS = 10_000, LLM_AT_ONCE = 240, LLM_KILLS = 1 } = process.env
const CALLS = SOAK === undefined ? 1000 : Number(LLM_CALLS)
const AT_ONCE = SOAK === undefined ? 240 : Number(LLM_AT_ONCE)
const KILLS = SOAK === undefined ? 1 : Number(LLM_KILLS)
/** No reservation may end before the books were read, also on a slow machine. A larger run does not wait until they end. */
const IS_LARGE = CALLS > 10_000
const TTL_MS = IS_LARGE ? 7_200_000 : SOAK === undefined ? 45_000 : 120_000
/** Decisions of so many calls at once wait for each other, and more connections would be too many for this process. */
const STORE = IS_LARGE ? { deadlineMs: 60_000, maxInFlight: 32 } : { deadlineMs: 10_000 }
const TEAMS = ['small', 'large', 'large'] as const
const BODY_BYTES = 200
/** On average, a call costs about 2,000 tokens. Team 'large' needs more than this for its calls, team 'small' less. */
const TOKENS = 1000 * CALLS
/** How long a client waits after a call without a reply. */
const BACKOFF_MS = 1000
/** Calls a second, and for how long, where HTTP requests to the store are counted. */
const RATE = 20
const SECONDS = 10

/** A settlement whose trip ends without an answer, because its request has ended, is sent again after the deadline. */
const PATIENTLY = { timeout: PATIENT_MS + STORE.deadlineMs, interval: 100 }

interface Call {
  team: (typeof TEAMS)[number]
  maximum: number
  plan: LlmPlan
  streams: boolean
  /** 0: no whole reply has arrived. */
  status: number
  /** Where it was sent, and when it began and ended (ms). */
  url?: string
  sentAt?: number
  endedAt?: number
}

/** What the calls are sent to. */
interface Fleet {
  urlOf(i: number): string
  /** Kills one of its processes. @returns false if it is the last one, which must live */
  kill(random: Random): boolean
  /** Whether the process of a call can have ended before it has settled the call. */
  mayBeLost(call: Call): boolean
  /** How many processes have ended. */
  ended(): number
}

const estimateOf = ({ maximum }: Call) => BODY_BYTES / 4 + maximum

/** One call in eleven fails at the origin, before any output. The last calls cost more than their estimates, so their team gets debt. */
function callOf(i: number, random: Random): Call {
  const streams = random.chance(0.5)
  const fault: LlmPlan = !random.chance(1 / 11)
    ? {}
    : streams && random.chance(0.5)
      ? { failAt: 0 }
      : { status: 503 }
  const plan = {
    input: random.int(1, 4000),
    output: random.int(1, 12),
    delayMs: random.int(0, 100),
    ...fault,
  }
  return { team: random.pick(TEAMS), maximum: 100 + CALLS - i, plan, streams, status: 0 }
}

function send(url: string, key: string, call: Call, name: string, agent: Agent): Promise<number> {
  const bodyWith = (content: string) =>
    JSON.stringify({
      ...{ model: 'words', messages: [{ role: 'user', content }] },
      ...{ max_tokens: call.maximum, stream: call.streams },
    })
  const body = bodyWith('x'.repeat(BODY_BYTES - bodyWith('').length))
  const headers = { authorization: `Bearer ${key}`, 'x-llm': JSON.stringify(call.plan), 'x-case': name }
  return new Promise(resolve => {
    const options = { agent, method: 'POST', headers: { ...headers, 'content-length': BODY_BYTES } }
    request(`${url}/v1/chat/completions`, options, reply =>
      reply
        .resume()
        .once('end', () => resolve(reply.complete ? reply.statusCode! : 0))
        .once('error', () => resolve(0)),
    )
      .once('error', () => resolve(0))
      .end(body)
  })
}

const title = hasRedisServer ? '' : ' (no redis-server is installed)'

describe.skipIf(!hasRedisServer)(`examples/llm under load${title}`, () => {
  let bed: LlmBed
  const agent = new Agent({ keepAlive: true })
  beforeAll(async () => {
    bed = await startLlmBed()
  })
  afterAll(async () => {
    agent.destroy()
    await bed?.close()
  })

  /** A Worker that is killed is replaced in a larger run. */
  async function startWorkers(variant: Variant): Promise<Fleet> {
    const workers = await Promise.all([bed.start(variant), bed.start(variant), bed.start(variant)])
    const alive: RunningWorker[] = [...workers]
    const killed = new Set<string>()
    // As many connections as of a large run can end the runtime of a Worker that is left alone: it has no file descriptors left.
    const ended = () => killed.union(bed.restarted)
    return {
      urlOf: i => alive[i % alive.length]!.url,
      kill(random) {
        if (alive.length === 1) return false
        const [worker] = alive.splice(random.int(0, alive.length - 1), 1)
        process.kill(-worker!.pid, 'SIGKILL')
        killed.add(worker!.url)
        if (KILLS > 1) void bed.start(variant).then(another => alive.push(another))
        return true
      },
      mayBeLost: ({ url }) => ended().has(url!),
      ended: () => ended().size,
    }
  }

  /** The primary process replaces a worker that is killed. Which worker had a call is not known. */
  async function startServe(variant: Variant): Promise<Fleet> {
    const server = await bed.serve(3, variant)
    const kills: number[] = []
    return {
      urlOf: () => server.url,
      kill(random) {
        const workers = server.workers()
        if (workers.length === 1) return false
        process.kill(random.pick(workers), 'SIGKILL')
        kills.push(performance.now())
        return true
      },
      // A settlement waits for the next trip, and is sent again after the deadline.
      mayBeLost: ({ sentAt, endedAt }) =>
        kills.some(at => at >= sentAt! && at <= endedAt! + 2 * STORE.deadlineMs),
      ended: () => kills.length,
    }
  }

  it.each([
    ['workers', startWorkers],
    ['serve', startServe],
  ])(
    'the books agree, and no reservation outlives its ttl: %s',
    async (title, start) => {
      // On a slow machine, some decisions come later than their deadline.
      const onStoreFailure = 'closed' as const
      const variant = { tokens: TOKENS, requests: 1_000_000, ttl: `${TTL_MS}ms`, onStoreFailure, ...STORE }
      const fleet = await start(variant)
      const teams = { small: `${title}-small`, large: `${title}-large` }
      const since = bed.origin.calls.length
      const random = randomFrom(SEED)
      const calls = Array.from({ length: CALLS }, (_, i) => callOf(i, random))
      const keys = { small: await bed.key(teams.small), large: await bed.key(teams.large) }
      /** A Worker is killed when so many calls were sent. */
      const killAfter = Array.from({ length: KILLS }, () =>
        KILLS === 1 ? 0.7 * CALLS : random.int(0.1 * CALLS, 0.9 * CALLS),
      ).sort((a, b) => a - b)
      let sent = 0
      let killedAt = 0
      async function client() {
        while (sent < CALLS) {
          const i = sent++
          const call = calls[i]!
          call.url = fleet.urlOf(i)
          call.sentAt = performance.now()
          call.status = await send(call.url, keys[call.team], call, String(i), agent)
          call.endedAt = performance.now()
          // As clients do. Without it, a Worker that restarts would be sent most of the calls.
          if (call.status === 0) await setTimeout(BACKOFF_MS)
          if (sent >= (killAfter[0] ?? Number.POSITIVE_INFINITY) && fleet.kill(random)) {
            killAfter.shift()
            killedAt = performance.now()
          }
        }
      }
      bed.store.count()
      const startedAt = performance.now()
      await Promise.all(Array.from({ length: AT_ONCE }, client))
      const seconds = (performance.now() - startedAt) / 1000

      const seen = new Map(bed.origin.calls.slice(since).map(call => [Number(call.headers['x-case']), call]))
      const summary: Record<string, unknown> = {
        ...{ calls: CALLS, atOnce: AT_ONCE, ended: fleet.ended(), restarted: bed.restarted.size },
        ...{ seconds, trips: bed.store.count() },
      }
      if (SOAK) console.log(summary)
      for (const team of ['small', 'large'] as const) {
        const all = calls
          .map((call, i) => ({ call, atOrigin: seen.get(i) }))
          .filter(({ call }) => call.team === team)
        // Also of calls that it has answered: a settlement waits up to 250 ms for the next trip.
        const ofEnded = new Set(all.flatMap(({ call }) => (fleet.mayBeLost(call) ? estimateOf(call) : [])))
        /** What the store must count, if these reservations are not settled. */
        const costWith = (reserved: ReadonlySet<number>) =>
          all.reduce((sum, { call, atOrigin }) => {
            if (reserved.has(estimateOf(call))) return sum + estimateOf(call)
            if (!atOrigin) return sum
            // A reply that breaks off does not say that nothing was produced.
            return sum + (call.plan.failAt === undefined ? tokensOf([atOrigin]) : estimateOf(call))
          }, 0)
        await expect
          .poll(async () => {
            const { used, reserved } = await bed.books(teams[team])
            return {
              difference: used - costWith(new Set(reserved)),
              ofOthers: reserved.filter(each => !ofEnded.has(each)),
            }
          }, PATIENTLY)
          .toEqual({ difference: 0, ofOthers: [] })
        const { used, reserved } = await bed.books(teams[team])
        // Most of its calls were settled before.
        expect(reserved.length).toBeLessThan(fleet.ended() * AT_ONCE)
        const refused = all.filter(({ call }) => call.status === 429).length
        const debt = Math.max(0, used - TOKENS)
        const unanswered = all.filter(
          ({ call }) => call.status === 0 && call.plan.failAt === undefined,
        ).length
        summary[team] = { refused, unanswered, unsettled: reserved.length, used, debt }
      }
      if (SOAK) console.log(summary)
      // No reservation of a killed Worker has ended so far.
      expect(performance.now() - (IS_LARGE ? startedAt : killedAt)).toBeLessThan(TTL_MS)
      if (IS_LARGE) return

      for (const team of ['small', 'large'] as const) {
        const { used } = await bed.books(teams[team])
        await expect
          .poll(() => bed.books(teams[team]), { timeout: TTL_MS + PATIENT_MS, interval: 1000 })
          .toEqual({ used, reserved: [] })
      }
    },
    3_600_000,
  )

  it('at 20 calls a second, settling costs at most 0.1 HTTP requests to the store per call', async () => {
    const tripsPerCall = async (isWithoutUnits: boolean) => {
      const worker = await bed.start({ requests: 1_000_000, tokens: 1_000_000_000, isWithoutUnits })
      const key = await bed.key(`paced-${isWithoutUnits}`)
      const plan = { input: 100, output: 3 }
      const call: Call = { team: 'small', maximum: 1000, plan, streams: false, status: 0 }
      await send(worker.url, key, call, 'first', agent)
      bed.store.count()
      const sent: Promise<number>[] = []
      for (let i = 0; i < RATE * SECONDS; i++) {
        sent.push(send(worker.url, key, call, 'paced', agent))
        await setTimeout(1000 / RATE)
      }
      expect(new Set(await Promise.all(sent))).toEqual(new Set([200]))
      if (!isWithoutUnits)
        await expect
          .poll(() => bed.books('paced-false'), PATIENTLY)
          .toEqual({ used: 103 * (sent.length + 1), reserved: [] })
      const trips = bed.store.count()
      await worker.close()
      return trips / sent.length
    }
    const [without, counted] = [await tripsPerCall(true), await tripsPerCall(false)]
    if (SOAK) console.log({ without, counted })
    expect(counted - without).toBeLessThanOrEqual(0.1)
  })
})
