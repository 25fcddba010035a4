/**
 * One isolate of the whole gateway in Node, bundled as for a deployment, together with its callers: they call its `fetch`, without
 * sockets, which would need more CPU than the machine has. It takes the commands of flood-client.ts and innocent-client.ts,
 * except `connect` and `burst`.
 */
import { writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { type BuildOptions, build } from 'esbuild'
import type { GatewayWorker } from '../../src/set-ups/gateway/worker.ts'
import { childSettings, handleCommands, reportReady } from '../child.ts'
import type { FloodAnswer, FloodCommand } from './flood-client.ts'
import type { InnocentCommand, Sample } from './innocent-client.ts'
import { NO_REPLY, type Reply } from './raw-connection.ts'
import { type Caller, callerOf, type FloodRequests, headersOf } from './requests.ts'
import { wallClock } from './wall-clock.ts'

export interface NodeGatewaySettings {
  /** Folder of the checkout, with its node_modules. */
  tree: string
  configFile: string
  bindings: Record<string, string>
}

/** The maximum number of unanswered requests of a flood in an isolate. A request that is due while so many are unanswered is not sent. */
const MAX_WAITING = 500
/** As in the clients with sockets. */
const TIMEOUT_MS = 10_000
const MAX_SILENCE_MS = 20_000
const TICK_MS = 1
const HOST = 'http://gateway.example'

const { tree, configFile, bindings } = childSettings<NodeGatewaySettings>()
const gateway = await startGateway()
// The gateway logs refusals. The Worker's log is not printed either.
for (const method of ['log', 'info', 'warn', 'error'] as const) console[method] = () => {}

let prepared: { requests: FloodRequests; callers: Caller[] } | undefined
/** When the gateway sent decisions about flooding callers to the store, by address of the caller. */
let scriptCalls: { at: number; address: string }[] = []
let floodingAddresses = new Set<string>()

let samples: Sample[] = []
let innocentTimer: NodeJS.Timeout | undefined
let innocentsWaiting = 0

observeStoreCalls()
handleCommands(async (command: FloodCommand | InnocentCommand) => {
  switch (command.do) {
    case 'send':
      return await sendInTurn(command)
    case 'prepare': {
      const { requests, count } = command
      prepared = { requests, callers: Array.from({ length: count }, (_, i) => callerOf(requests, i)) }
      return {}
    }
    case 'stream':
      return await stream(command.perSecond)
    case 'start':
      return startInnocents(command)
    case 'look':
      return samples.slice(-command.count)
    case 'stop':
      return await stopInnocents()
    default:
      throw new Error(`Without connections, this is not possible: ${command.do}`)
  }
})
reportReady({})

async function startGateway(): Promise<GatewayWorker> {
  // The build is that of the checkout, and it builds the project of its working directory.
  process.chdir(tree)
  const sourceOf = (name: string) => import(pathToFileURL(join(tree, 'src', name)).href)
  const { bundleOptions } = await sourceOf('node/worker-bundle.ts')
  const { checkedConfig } = await sourceOf('config/check/check.ts')
  const config = await import(pathToFileURL(configFile).href)
  const options: BuildOptions = bundleOptions(configFile, async () => checkedConfig(config.default))
  const { outputFiles } = await build({ ...options, minify: true, write: false })
  const file = join(tmpdir(), `gateway-${process.pid}.mjs`)
  writeFileSync(file, outputFiles[0]!.contents)
  return (await import(pathToFileURL(file).href)).default
}

/** Notes each decision that the gateway sends to the store, in a wrapper of fetch. */
function observeStoreCalls(): void {
  const realFetch = globalThis.fetch
  globalThis.fetch = (...args) => {
    const [url, settings] = args
    if (String(url).startsWith(bindings.UPSTASH_REDIS_REST_URL!)) noteCalls(String(settings?.body))
    return realFetch(...args)
  }
}

function noteCalls(body: string): void {
  const at = wallClock()
  const words: unknown[] = JSON.parse(body)
  for (const command of Array.isArray(words[0]) ? words : [words]) {
    const [name] = command as string[]
    if (!/^eval(sha)?$/i.test(name!)) continue
    const address = /\{ip:([^}]+)\}/.exec(String(command))?.[1]
    if (address !== undefined && floodingAddresses.has(address)) scriptCalls.push({ at, address })
  }
}

async function replyOfGateway(path: string, caller: Caller): Promise<Reply> {
  const request = new Request(HOST + path, { headers: headersOf(caller) })
  const context = { waitUntil: (task: Promise<unknown>) => void task.catch(() => {}) }
  const response = await gateway.fetch(request, bindings, context)
  // Admitted requests have a body from the origin. The body of a refusal is here already, and reading it would only take CPU.
  if (response.ok) await response.arrayBuffer()
  const mark = response.headers.get('sluice-degraded')
  return mark === null ? String(response.status) : `${response.status} ${mark}`
}

async function sendInTurn({ requests, count }: Extract<FloodCommand, { do: 'send' }>) {
  const replies: Record<Reply, number> = {}
  for (let i = 0; i < count; i++) {
    const kind = await replyOfGateway(requests.path, callerOf(requests, i))
    replies[kind] = (replies[kind] ?? 0) + 1
  }
  return replies
}

/** The elapsed time determines how many requests are due. So a process that was late catches up. */
async function stream(perSecond: number): Promise<FloodAnswer> {
  if (!prepared) throw new Error('No flood is prepared.')
  const { requests, callers } = prepared
  prepared = undefined
  scriptCalls = []
  floodingAddresses = new Set(requests.callers.map(({ address }) => address))
  const startedAt = wallClock()
  const secondOf = (at: number) => Math.floor((at - startedAt) / 1000)
  const answer: FloodAnswer = { replies: {}, startedAt, endedAt: startedAt, notSent: 0 }
  const seconds = Array.from({ length: Math.ceil(callers.length / perSecond) }, () => ({
    sent: 0,
    scriptCalls: 0,
  }))
  let waiting = 0
  const send = async (caller: Caller) => {
    waiting += 1
    const kind = await replyOfGateway(requests.path, caller).catch((): Reply => NO_REPLY)
    waiting -= 1
    answer.endedAt = wallClock()
    answer.replies[kind] = (answer.replies[kind] ?? 0) + 1
  }
  for (let begun = 0; begun < callers.length; ) {
    const now = wallClock()
    const due = Math.min(callers.length, Math.floor(((now - startedAt) * perSecond) / 1000))
    for (; begun < due; begun++) {
      if (waiting >= MAX_WAITING) answer.notSent += 1
      else {
        seconds[Math.min(secondOf(now), seconds.length - 1)]!.sent += 1
        void send(callers[begun]!)
      }
    }
    await pause(TICK_MS)
  }
  while (waiting > 0 && wallClock() - answer.endedAt < MAX_SILENCE_MS) await pause(TICK_MS)
  if (waiting > 0) answer.replies[NO_REPLY] = (answer.replies[NO_REPLY] ?? 0) + waiting
  for (const { at } of scriptCalls) {
    const second = seconds[secondOf(at)]
    if (second) second.scriptCalls += 1
  }
  const shortestPauseMs = shortestPause(startedAt + 1000)
  return { ...answer, seconds, ...(shortestPauseMs !== undefined && { shortestPauseMs }) }
}

/** The shortest time between two decisions about one caller that went to the store after `from`. */
function shortestPause(from: number): number | undefined {
  const last = new Map<string, number>()
  let shortest: number | undefined
  for (const { at, address } of scriptCalls) {
    if (at < from) continue
    const before = last.get(address)
    last.set(address, at)
    if (before !== undefined) shortest = Math.min(shortest ?? at - before, at - before)
  }
  return shortest
}

/** The time of a request begins when it is due, so that it includes the time in which the process was busy. */
function startInnocents({ callers, path, perSecond }: Extract<InnocentCommand, { do: 'start' }>): void {
  const startedAt = wallClock()
  let begun = 0
  const dueAt = () => startedAt + (begun * 1000) / perSecond
  const tick = () => {
    for (; dueAt() <= wallClock(); begun++) void sendInnocent(path, callers[begun % callers.length]!, dueAt())
    innocentTimer = setTimeout(tick, dueAt() - wallClock())
  }
  tick()
}

async function sendInnocent(path: string, caller: Caller, sentAt: number): Promise<void> {
  innocentsWaiting += 1
  const timeout = new Promise<Reply>(resolve => setTimeout(resolve, TIMEOUT_MS, NO_REPLY).unref())
  const kind = await Promise.race([replyOfGateway(path, caller).catch((): Reply => NO_REPLY), timeout])
  samples.push({ sentAt, tookMs: wallClock() - sentAt, reply: kind })
  innocentsWaiting -= 1
}

async function stopInnocents(): Promise<Sample[]> {
  clearTimeout(innocentTimer)
  while (innocentsWaiting > 0) await pause(5)
  const all = samples
  samples = []
  return all
}

function pause(milliseconds: number): Promise<void> {
  return new Promise(resolve => setTimeout(resolve, milliseconds))
}
