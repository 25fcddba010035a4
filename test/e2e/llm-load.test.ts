/**
 * examples/llm under load: hundreds of calls at once through three Workers, one of which is killed. The books agree to the token: each call
 * has an estimate of its own, so the reservations that are left name the calls of the killed Worker that were not settled.
 */
import { Agent, request } from 'node:http'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { RunningWorker } from '../../src/node/start/worker.ts'
import { type LlmBed, startLlmBed, tokensOf } from '../support/llm-bed.ts'
import type { LlmPlan } from '../support/llm-origin.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { type Random, randomFrom, SEED } from '../support/random.ts'
import { hasRedisServer } from '../support/servers.ts'

const CALLS = process.env.SOAK === undefined ? 1000 : 10_000
const AT_ONCE = 240
/** A Worker is killed when so many calls were sent. */
const KILL_AFTER = 0.7 * CALLS
const TTL_MS = process.env.SOAK === undefined ? 20_000 : 120_000
const TEAMS = ['small', 'large', 'large'] as const
const BODY_BYTES = 200
/** On average, a call costs about 2,000 tokens. Team 'large' needs more than this for its calls, team 'small' less. */
const TOKENS = 1000 * CALLS
/** Calls a second, and for how long, where HTTP requests to the store are counted. */
const RATE = 20
const SECONDS = 10

const PATIENTLY = { timeout: PATIENT_MS, interval: 100 }

interface Call {
  team: (typeof TEAMS)[number]
  maximum: number
  plan: LlmPlan
  streams: boolean
  /** 0: no whole reply has arrived. */
  status: number
  /** Where it was sent. */
  url?: string
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

  it('the books agree, and no reservation outlives its ttl', async () => {
    const variant = { tokens: TOKENS, requests: 1_000_000, ttl: `${TTL_MS}ms` }
    const workers = await Promise.all([bed.start(variant), bed.start(variant), bed.start(variant)])
    const random = randomFrom(SEED)
    const calls = Array.from({ length: CALLS }, (_, i) => callOf(i, random))
    const keys = { small: await bed.key('small'), large: await bed.key('large') }
    const alive: RunningWorker[] = [...workers]
    let sent = 0
    let killedAt = 0
    async function client() {
      while (sent < CALLS) {
        const i = sent++
        const call = calls[i]!
        const { url } = alive[i % alive.length]!
        call.url = url
        call.status = await send(url, keys[call.team], call, String(i), agent)
        if (sent >= KILL_AFTER && killedAt === 0) {
          const [killed] = alive.splice(0, 1)
          process.kill(-killed!.pid, 'SIGKILL')
          killedAt = performance.now()
        }
      }
    }
    bed.store.count()
    const startedAt = performance.now()
    await Promise.all(Array.from({ length: AT_ONCE }, client))
    const seconds = (performance.now() - startedAt) / 1000

    const seen = new Map(bed.origin.calls.map(call => [Number(call.headers['x-case']), call]))
    const summary: Record<string, unknown> = { calls: CALLS, seconds, trips: bed.store.count() }
    for (const team of ['small', 'large'] as const) {
      const all = calls
        .map((call, i) => ({ call, atOrigin: seen.get(i) }))
        .filter(({ call }) => call.team === team)
      // Also of calls that it has answered: a settlement waits up to 250 ms for the next trip.
      const ofKilled = new Set(
        all.flatMap(({ call }) => (call.url === workers[0].url ? estimateOf(call) : [])),
      )
      /** What the store must count, if these reservations are not settled. */
      const costWith = (reserved: readonly number[]) =>
        all.reduce((sum, { call, atOrigin }) => {
          if (reserved.includes(estimateOf(call))) return sum + estimateOf(call)
          return sum + (atOrigin && call.plan.failAt === undefined ? tokensOf([atOrigin]) : 0)
        }, 0)
      await expect
        .poll(async () => {
          const { used, reserved } = await bed.books(team)
          return {
            difference: used - costWith(reserved),
            ofOthers: reserved.filter(each => !ofKilled.has(each)),
          }
        }, PATIENTLY)
        .toEqual({ difference: 0, ofOthers: [] })
      const { used, reserved } = await bed.books(team)
      // Most of its calls were settled before.
      expect(reserved.length).toBeLessThan(AT_ONCE)
      const refused = all.filter(({ call }) => call.status === 429).length
      const debt = Math.max(0, used - TOKENS)
      const unanswered = all.filter(({ call }) => call.status === 0 && call.plan.failAt === undefined).length
      summary[team] = { refused, unanswered, unsettled: reserved.length, used, debt }
    }
    if (process.env.SOAK) console.log(summary)
    // No reservation of the killed Worker has ended so far.
    expect(performance.now() - killedAt).toBeLessThan(TTL_MS)

    for (const team of ['small', 'large'] as const) {
      const { used } = await bed.books(team)
      await expect
        .poll(() => bed.books(team), { timeout: TTL_MS + PATIENT_MS, interval: 1000 })
        .toEqual({ used, reserved: [] })
    }
  }, 600_000)

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
        await new Promise(resolve => setTimeout(resolve, 1000 / RATE))
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
    if (process.env.SOAK) console.log({ without, counted })
    expect(counted - without).toBeLessThanOrEqual(0.1)
  })
})
