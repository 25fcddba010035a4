/**
 * examples/llm with real parts: the official SDKs as clients, Workers in workerd, a Redis that is stopped, and Workers that are killed. What
 * the store counts afterwards is what the origin has reported.
 */
import { join } from 'node:path'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { RunningWorker } from '../../src/node/start/worker.ts'
import { type LlmBed, sdksOf, startLlmBed, tokensOf } from '../support/llm-bed.ts'
import type { LlmPlan } from '../support/llm-origin.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { hasRedisServer } from '../support/servers.ts'
import { bundleForWorkerd } from '../support/snippet-modules.ts'
import { startWorkerScript } from '../support/workerd.ts'

const PATIENTLY = { timeout: PATIENT_MS, interval: 20 }
const MESSAGES = [{ role: 'user' as const, content: 'Say some words, please.' }]
const CHAT = { model: 'words', messages: MESSAGES, max_tokens: 500 }
/** Costs 70 tokens. The test lets it go on after its first event. */
const gated = (gate: string): LlmPlan => ({ input: 40, output: 30, gate })

const title = hasRedisServer ? '' : ' (no redis-server is installed)'

describe.skipIf(!hasRedisServer)(`examples/llm${title}`, () => {
  let bed: LlmBed
  let openaiWorkers: [RunningWorker, RunningWorker]
  let anthropicWorker: RunningWorker
  beforeAll(async () => {
    bed = await startLlmBed()
    const [one, other, third] = await Promise.all([
      bed.start(),
      bed.start(),
      bed.start({ usage: 'anthropic' }),
    ])
    openaiWorkers = [one, other]
    anthropicWorker = third
  })
  afterAll(() => bed?.close())

  let teams = 0
  async function newTeam() {
    teams += 1
    const name = `team-${teams}`
    const key = await bed.key(name)
    const since = bed.origin.calls.length
    return {
      openai: (plan?: LlmPlan, worker = openaiWorkers[0]) => sdksOf(worker.url, key, plan).openai,
      anthropic: (plan?: LlmPlan) => sdksOf(anthropicWorker.url, key, plan).anthropic,
      books: () => bed.books(name),
      /** Of this team: tests run one after the other. */
      calls: () => bed.origin.calls.slice(since),
      ...{ name, key },
    }
  }
  type Team = Awaited<ReturnType<typeof newTeam>>

  const untilSettled = (team: Team, used: number) =>
    expect.poll(team.books, PATIENTLY).toEqual({ used, reserved: [] })

  /** Begins a chat that streams, and waits for its first word. */
  async function beginChat(openai: OpenAI) {
    const stream = await openai.chat.completions.create({ ...CHAT, stream: true })
    const chunks = stream[Symbol.asyncIterator]()
    await chunks.next()
    const rest = async () => {
      while (!(await chunks.next()).done);
    }
    return { leave: () => stream.controller.abort(), rest }
  }

  it('gives the key of the API to the origin, keeps that of the team, and sees that a client leaves', async () => {
    const script = await bundleForWorkerd(join(bed.folder, 'src/index.ts'))
    const own = await startWorkerScript(script, { ...bed.bindings, PROVIDER_API_KEY: 'key-of-the-api' })
    try {
      const team = await newTeam()
      await sdksOf(own.url, team.key, { input: 40, output: 7 }).openai.chat.completions.create(CHAT)
      const [call] = team.calls()
      expect(call!.headers.authorization).toBe('Bearer key-of-the-api')
      expect(JSON.stringify(call!.headers)).not.toContain(team.key)
      await sdksOf(own.url, team.key)
        .openai.files.delete('file-1')
        .catch(() => {})
      expect(bed.origin.refused.at(-1)).toMatchObject({ path: '/v1/files/file-1', authorization: null })
      // The window of the example's config ends at midnight, so only its reservations are read.
      const reservations = () => bed.reservations(team.name)
      await expect.poll(reservations, PATIENTLY).toEqual([])
      const { leave } = await beginChat(sdksOf(own.url, team.key, { output: 100_000, pauseMs: 5 }).openai)
      expect(await reservations()).toHaveLength(1)
      leave()
      await expect.poll(reservations, PATIENTLY).toEqual([])
    } finally {
      await own.close()
    }
  })

  it('counts what the origin has reported, of all Workers and ways to call', async () => {
    const team = await newTeam()
    const plans: LlmPlan[] = [{}, { output: 300, cached: 9 }, { input: 5000, output: 1, gzip: true }]
    await Promise.all(
      plans.flatMap(plan => [
        ...openaiWorkers.map(worker => team.openai(plan, worker).chat.completions.create(CHAT)),
        ...openaiWorkers.map(worker => beginChat(team.openai(plan, worker)).then(({ rest }) => rest())),
        team.openai(plan).responses.create({ model: 'words', input: 'Words, please.' }),
        team.openai(plan).embeddings.create({ model: 'words', input: 'Words.' }),
        team.anthropic({ ...plan, cacheWrite: 4 }).messages.create(CHAT),
        team
          .anthropic({ ...plan, cacheWrite: 4 })
          .messages.stream(CHAT)
          .finalMessage(),
      ]),
    )
    expect(team.calls()).toHaveLength(plans.length * 8)
    await untilSettled(team, tokensOf(team.calls()))
  })

  it.each(['openai', 'anthropic'] as const)('refuses with a RateLimitError of the SDK: %s', async which => {
    const team = await newTeam()
    // Costs more than the limit, which is known afterwards.
    const plan = { input: 1_200_000, output: 5 }
    if (which === 'openai') await team.openai(plan).chat.completions.create(CHAT)
    else await team.anthropic(plan).messages.create(CHAT)
    await untilSettled(team, 1_200_005)
    const error = await (which === 'openai'
      ? team.openai().chat.completions.create(CHAT)
      : team.anthropic().messages.create(CHAT)
    ).catch(error => error)
    expect(error).toBeInstanceOf({ openai: OpenAI, anthropic: Anthropic }[which].RateLimitError)
    expect(Number(error.headers.get('retry-after'))).toBeGreaterThan(0)
    expect(error.message).toMatch(/Limit reached: tokens \(1000000 tokens per .* Try again /)
    expect(team.calls()).toHaveLength(1)
    await untilSettled(team, 1_200_005)
  })

  it('a client that leaves before any usage has arrived costs the estimate, or what was counted', async () => {
    const team = await newTeam()
    const { leave } = await beginChat(team.openai({ output: 100_000, pauseMs: 5 }))
    const { used, reserved } = await team.books()
    expect(reserved).toEqual([used])
    expect(used).toBeGreaterThan(500)
    leave()
    await expect.poll(async () => (await team.books()).reserved, PATIENTLY).toEqual([])
    const cost = (await team.books()).used
    expect(cost).toBeGreaterThanOrEqual(used)
    expect(cost).toBeLessThanOrEqual(Math.max(used, tokensOf(team.calls())))
  })

  it('a client that leaves after some usage has arrived costs what was reported', async () => {
    const team = await newTeam()
    const plan = { input: 40, output: 100_000, pauseMs: 5 }
    const stream = await team.anthropic(plan).messages.create({ ...CHAT, stream: true })
    const { value } = await stream[Symbol.asyncIterator]().next()
    const { usage } = (value as Anthropic.RawMessageStartEvent).message
    stream.controller.abort()
    await expect.poll(async () => (await team.books()).reserved, PATIENTLY).toEqual([])
    // Each further word that has passed until then costs a token, too.
    const { used } = await team.books()
    const first = usage.input_tokens + usage.output_tokens
    expect(used).toBeGreaterThanOrEqual(first)
    expect(used).toBeLessThanOrEqual(Math.max(first, tokensOf(team.calls())))
  })

  it.each([['replies with an error', { status: 503 }]] as const)(
    'a call costs nothing if the origin %s',
    async (_, plan) => {
      const team = await newTeam()
      await expect(beginChat(team.openai(plan))).rejects.toThrow()
      await untilSettled(team, 0)
      await expect(team.anthropic(plan).messages.stream(CHAT).finalMessage()).rejects.toThrow()
      await untilSettled(team, 0)
    },
  )

  it('a call costs its estimate if the origin breaks off: it may have worked', async () => {
    const team = await newTeam()
    await expect(beginChat(team.openai({ failAt: 0 }))).rejects.toThrow()
    await expect.poll(async () => (await team.books()).reserved, PATIENTLY).toEqual([])
    expect((await team.books()).used).toBeGreaterThan(500)
  })

  it('repeats a settlement whose reply was lost, and it counts once', async () => {
    const team = await newTeam()
    let lost = 0
    bed.store.fault = (request, response, passOn) => {
      let body = ''
      request.on('data', chunk => {
        body += chunk
      })
      passOn(answer => {
        if (lost === 0 && body.includes('"settle"')) {
          lost += 1
          response.destroy()
        } else answer.pipe(response.writeHead(answer.statusCode!, answer.headers))
      })
    }
    await team.openai({ input: 40, output: 30 }).chat.completions.create(CHAT)
    await expect.poll(() => lost, PATIENTLY).toBe(1)
    bed.store.fault = undefined
    await untilSettled(team, 70)
    // Their settlements arrive behind the repeated one.
    await team.openai({ input: 1, output: 1 }).chat.completions.create(CHAT)
    await untilSettled(team, 72)
  })

  it('settles after an outage what has ended during it, once', async () => {
    const team = await newTeam()
    const begun = await Promise.all(
      openaiWorkers.flatMap(worker => [1, 2, 3].map(() => beginChat(team.openai(gated('outage'), worker)))),
    )
    expect((await team.books()).reserved).toHaveLength(6)
    await bed.redis.kill()
    bed.origin.open('outage')
    await Promise.all(begun.map(({ rest }) => rest()))
    // The Workers have tried to settle.
    bed.store.count()
    await expect.poll(() => bed.store.count(), PATIENTLY).toBeGreaterThan(0)
    await bed.redis.start()
    await untilSettled(team, 6 * 70)
    await Promise.all(
      openaiWorkers.map(worker => team.openai({ input: 1, output: 1 }, worker).chat.completions.create(CHAT)),
    )
    await untilSettled(team, 6 * 70 + 4)
  })

  it('a stream that takes longer than the ttl keeps its reservation', async () => {
    const worker = await bed.start({ ttl: '10s' })
    const team = await newTeam()
    const { rest } = await beginChat(team.openai(gated('long'), worker))
    const [first] = await bed.reservations(team.name)
    await expect.poll(() => Date.now(), { timeout: 2 * PATIENT_MS }).toBeGreaterThan(first!.until)
    expect(await bed.reservations(team.name)).toEqual([{ ...first, until: expect.any(Number) }])
    bed.origin.open('long')
    await rest()
    await untilSettled(team, 70)
  })

  it('with release, the estimates of a killed Worker are given back after the ttl', async () => {
    const variant = { ttl: '10s', onUnsettled: 'release' } as const
    const [killed, other] = await Promise.all([bed.start(variant), bed.start(variant)])
    const team = await newTeam()
    await Promise.all([1, 2].map(() => beginChat(team.openai(gated('never'), killed))))
    expect(await bed.reservations(team.name)).toHaveLength(2)
    process.kill(-killed.pid, 'SIGKILL')
    await expect.poll(() => bed.reservations(team.name), { timeout: 2 * PATIENT_MS }).toEqual([])
    await team.openai({ input: 40, output: 3 }, other).chat.completions.create(CHAT)
    await untilSettled(team, 43)
  })

  // Runs last, because its Worker is not restarted.
  it('a killed Worker leaves the estimates of its requests spent, and nothing more', async () => {
    const team = await newTeam()
    const [one, other] = openaiWorkers
    await team.openai({ input: 40, output: 3 }).chat.completions.create(CHAT)
    await untilSettled(team, 43)
    const [, , survives] = await Promise.all([
      beginChat(team.openai(gated('never'), one)),
      beginChat(team.openai(gated('never'), one)),
      beginChat(team.openai(gated('after the kill'), other)),
    ])
    const { used, reserved } = await team.books()
    const [estimate] = reserved as [number]
    expect(reserved).toEqual([estimate, estimate, estimate])
    expect(used).toBe(43 + 3 * estimate)
    process.kill(-one.pid, 'SIGKILL')
    bed.origin.open('after the kill')
    await survives.rest()
    const left = { used: 43 + 2 * estimate + 70, reserved: [estimate, estimate] }
    await expect.poll(team.books, PATIENTLY).toEqual(left)
  })
})
