/** Sends many requests of several callers to two Workers. The requests end in all ways, while calls to the store fail at random. */
import { Agent, type IncomingMessage } from 'node:http'
import { bodyOf, STORE_FAULTS } from '../anomaly/faults-of-store.ts'
import { DEADLINE_MS } from '../anomaly/modes.ts'
import type { BedWorker, ConcurrencyBed } from './concurrency-bed.ts'
import { NO_HEAD, sendRequest, WAYS } from './concurrency-client.ts'
import type { Fault } from './counting-proxy.ts'
import { armHttp } from './fault-proxy.ts'
import { type Random, randomFrom } from './random.ts'

/** A caller, and the rule that counts it. */
export interface MixedCaller {
  name: string
  /** The prefix of its paths, which chooses the rule: `/hour/address`. */
  path: string
  headers: Record<string, string>
}

export interface MixtureOrder {
  seed: number
  requests: number
  atOnce: number
  callers: readonly MixedCaller[]
  /** After this many requests, a Worker is killed and started again. */
  killEvery?: number
}

export interface Mixed {
  /** Results of the clients: statuses, `left` and `broken`. */
  seen: Record<string, number>
  /** Number of calls to the store with each fault. */
  faults: Record<string, number>
  kills: number
}

/** After this many requests, each Worker gets another fault, or none. */
const FAULT_EVERY = 50
const SHARES = [0.02, 0.1, 0.3]
const LEAVE_MS = 30

/** After each of these faults, the isolate does not know what the store has counted, or assumes a wrong count. */
const OF_HTTP = [
  'hangs',
  'resets the connection',
  'answers 500 ERR internal error',
  'is late',
  'resets mid-reply',
  'hangs mid-reply',
  'answers with half of the JSON',
  'executes the call, then answers 500',
].map(name => {
  const found = STORE_FAULTS.find(fault => fault.name === name)
  if (!found?.fault) throw new Error(`There is no fault '${name}' of the store.`)
  return [name, found.fault] as const
})

/** @param bridgeUrl the target of calls that are resent even if their sender no longer waits */
function faultsBefore(bridgeUrl: string): readonly (readonly [name: string, fault: Fault])[] {
  const sendOn = async ({ method = 'POST', url, headers }: IncomingMessage, body: Buffer) => {
    const { authorization = '', 'content-type': type = '' } = headers
    const sent = { method, body, headers: { authorization, 'content-type': type } }
    const answer = await fetch(bridgeUrl + url, sent)
    return { status: answer.status, text: await answer.text() }
  }
  const resend =
    (pauses: readonly number[]): Fault =>
    (request, response) => {
      const answered = bodyOf(request).then(body =>
        Promise.all(pauses.map(ms => pause(ms).then(() => sendOn(request, body)))),
      )
      response.on('error', () => {})
      answered.then(
        ([first]) =>
          response.writeHead(first!.status, { 'content-type': 'application/json' }).end(first!.text),
        // The sender was killed before its call was complete.
        () => response.destroy(),
      )
    }
  return [
    ...OF_HTTP,
    ['arrives after it was given up', resend([DEADLINE_MS + 100])],
    ['arrives twice', resend([0, 5])],
    ['arrives twice, the second time when later ones have arrived', resend([0, DEADLINE_MS])],
  ]
}

export async function mix(bed: ConcurrencyBed, order: MixtureOrder): Promise<Mixed> {
  const random = randomFrom(order.seed)
  const agents = bed.workers.map(() => new Agent({ keepAlive: true, maxSockets: order.atOnce }))
  const mixed: Mixed = { seen: {}, faults: {}, kills: 0 }
  const faults = faultsBefore(bed.bridgeUrl)
  let sent = 0
  let restarting: Promise<void> = Promise.resolve()

  async function ask(): Promise<void> {
    while (sent < order.requests) {
      sent += 1
      if (sent % FAULT_EVERY === 0) for (const worker of bed.workers) rearm(worker, random, mixed, faults)
      if (order.killEvery && sent % order.killEvery === 0) restarting = restarting.then(killOne)
      await askOnce(`${order.seed}-${sent}`)
    }
  }

  async function killOne(): Promise<void> {
    const worker = random.pick(bed.workers)
    worker.kill()
    mixed.kills += 1
    await worker.restart()
  }

  async function askOnce(name: string): Promise<void> {
    const [caller, place] = [random.pick(order.callers), random.int(0, bed.workers.length - 1)]
    const way = random.chance(0.01) ? NO_HEAD : random.pick(WAYS)
    const result = await sendRequest({
      agent: agents[place]!,
      url: bed.workers[place]!.url + caller.path + way.path,
      headers: { ...caller.headers, 'x-case': name, 'x-caller': caller.name },
      way,
      leaveAfterMs: random.int(0, LEAVE_MS),
      onLeave: () => bed.tally.leave(name),
    })
    mixed.seen[result] = (mixed.seen[result] ?? 0) + 1
    // After a refusal, the client waits a moment, as real clients do.
    if (result === 429 || result === 503 || result === 'broken') await pause(random.int(0, 100))
  }

  await Promise.all(Array.from({ length: order.atOnce }, ask))
  await restarting
  for (const { store } of bed.workers) store.fault = undefined
  for (const agent of agents) agent.destroy()
  return mixed
}

function rearm(
  { store }: BedWorker,
  random: Random,
  { faults }: Mixed,
  all: ReturnType<typeof faultsBefore>,
): void {
  store.fault = undefined
  if (random.chance(0.5)) return
  const [name, fault] = random.pick(all)
  const share = random.pick(SHARES)
  // The first call always fails, so that even a slow machine, which sends few calls, applies each fault.
  let isFirst = true
  armHttp(
    store,
    (...call) => {
      isFirst = false
      faults[name] = (faults[name] ?? 0) + 1
      return fault(...call)
    },
    () => isFirst || random.chance(share),
  )
}

const pause = (ms: number) => new Promise(resolve => setTimeout(resolve, ms))
