/** What acts on a recorded state (recorded-state.ts): isolates of this version, and calls that an earlier version has sent. */
import type { Timer } from '../../src/clock.ts'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { Config } from '../../src/config/compile.ts'
import { GatewayError } from '../../src/errors.ts'
import type { RuleSetScripts, RuleSetShape } from '../../src/script/rule-set-shape.ts'
import { compileScripts } from '../../src/script/scripts.ts'
import { api } from '../../src/set-ups/api/index.ts'
import { createGateway } from '../../src/set-ups/gateway/app.ts'
import { METRICS_PARTS } from '../../src/set-ups/gateway/metrics.ts'
import { ALL_PARTS } from '../../src/set-ups/http/all-parts.ts'
import { sha1 } from '../../src/sha1.ts'
import type { AdminConnection, Command, Reply } from '../../src/store/admin-connection.ts'
import type { ScriptText, Store } from '../../src/store/store.ts'
import type { ClockedRedis } from './clocked-redis.ts'
import { timersBy } from './quick-time.ts'
import {
  type About,
  type Answer,
  configInputOf,
  type Receipt,
  type RecordedCall,
  type RecordedStep,
  type Step,
  type Trip,
} from './recorded-state.ts'
import type { OpenStore, StoreKind } from './store-kinds.ts'

export interface WorldOptions {
  about: Omit<About, 'commit' | 'secrets' | 'isolates'>
  redis: ClockedRedis
  /** How isolates reach the store. */
  kind: StoreKind
}

/** Everything that acts on one Redis, at the time of its clock. */
export async function startWorld({ about, redis, kind }: WorldOptions) {
  const input = configInputOf(about)
  const nowMs = () => Math.floor(redis.now() / 1000)
  const isolates = new Map<string, Isolate>()
  const opened = new Map<string, OpenStore>()
  const receipts = new Map(Object.entries(about.receipts))
  /** What is random in an earlier version's calls, and what this version has instead. */
  const replaced = new Map<string, string>()
  const bodies = new Map<string, () => void>()
  let unnamed = 0

  const configs = new Map<string | undefined, Config>()
  function configOf(environment: string | undefined): Config {
    const config =
      configs.get(environment) ?? checkedConfig({ ...input, ...(environment && { environment }) })
    configs.set(environment, config)
    return config
  }

  /** The stores of an environment. */
  async function storesOf(environment = ''): Promise<OpenStore> {
    const known = opened.get(environment) ?? (await kind.open(redis.url, environment ? { environment } : {}))
    opened.set(environment, known)
    return known
  }

  async function isolateOf({ isolate = `unnamed ${unnamed++}`, environment }: Step): Promise<Isolate> {
    const name = `${environment ?? ''} ${isolate}`
    const known = isolates.get(name)
    if (known) return known
    const made = createIsolate(configOf(environment), await storesOf(environment), {
      variables: about.variables,
      nowMs,
    })
    isolates.set(name, made)
    return made
  }

  const resolved = (body: unknown): unknown => {
    if (Array.isArray(body) || typeof body !== 'object' || body === null) return body
    if ('receiptOf' in body) return receipts.get(String(body.receiptOf))
    return Object.fromEntries(Object.entries(body).map(([name, value]) => [name, resolved(value)]))
  }

  return {
    /** Does the step with this version. @returns the answer to its request, and its trips to the store */
    async perform(step: Step): Promise<{ answer?: Answer; trips: readonly Trip[] }> {
      await redis.moveOn(about.recordedAt + step.at)
      const isolate = await isolateOf(step)
      const { event } = step
      isolate.isStoreAway = step.isStoreAway ?? false
      isolate.trips = []
      let answer: Answer | undefined
      if (event === 'ring') isolate.ring()
      else if (event === 'stop') await isolate.stop()
      else if (event) bodies.get(event.finish)?.()
      else {
        const [method = '', path = ''] = step.request!.split(' ')
        const { origin = {}, headers = {}, body } = step
        const reply = isolate.ask(path, {
          method,
          headers: { ...(body !== undefined && { 'content-type': 'application/json' }), ...headers },
          body: body === undefined ? null : JSON.stringify(resolved(body)),
          origin,
          onOpen: end => bodies.set(step.name, end),
        })
        answer = await answerOf(await reply, origin.isOpen)
      }
      await isolate.settled()
      isolate.isStoreAway = false
      if (answer?.receipt) receipts.set(step.name, answer.receipt)
      return { ...(answer && { answer }), trips: isolate.trips }
    },

    /**
     * Lets later calls of the earlier version name a decision of this version: they have the id of their own decision, or the part of it
     * that names a holder, or a reservation in a state.
     */
    replace(before: Receipt | undefined, now: Receipt | undefined): void {
      if (!before || !now) return
      const [own, other] = [String(before.id), String(now.id)]
      for (const part of [[0], [0, 8], [-7]]) replaced.set(own.slice(...part), other.slice(...part))
    },

    /** Sends what the earlier version has sent for this step. @returns the replies to each trip */
    async replay(
      step: RecordedStep,
      scripts: ReadonlyMap<string, ScriptText>,
    ): Promise<(readonly unknown[])[]> {
      await redis.moveOn(about.recordedAt + step.at)
      const { store, admin } = await storesOf(step.environment)
      if (step.answer?.receipt) receipts.set(step.name, step.answer.receipt)
      const replies: (readonly unknown[])[] = []
      for (const trip of step.trips) replies.push(await sendAgain(trip, { store, admin, scripts, replaced }))
      return replies
    },

    async close(): Promise<void> {
      for (const { close } of opened.values()) await close()
    },
  }
}

export type World = Awaited<ReturnType<typeof startWorld>>

interface Sending extends Pick<OpenStore, 'store' | 'admin'> {
  scripts: ReadonlyMap<string, ScriptText>
  replaced: ReadonlyMap<string, string>
}

async function sendAgain(
  { calls, admin: way }: Trip,
  { store, admin, scripts, replaced }: Sending,
): Promise<readonly unknown[]> {
  const own = (word: string | number) =>
    [...replaced].reduce((text, [before, now]) => text.replaceAll(before, now), String(word))
  if (way) {
    const commands = calls.map(({ command: [name, first, ...others] }): Command => {
      const words = others.map(own)
      return name === 'EVAL'
        ? [name, scripts.get(String(first))!.source, ...words]
        : first === undefined
          ? [name as string]
          : [name as string, own(first), ...words]
    })
    if (way === 'run') return [await admin.run(...commands[0]!)]
    return await admin[way](commands)
  }
  return await store.run(
    calls.map(({ command: [name, ...words] }) => {
      if (name !== 'EVALSHA') return { command: name as 'GET' | 'HGETALL', key: own(words[0]!) }
      const [digest, count, ...others] = words
      const text = scripts.get(String(digest))!
      const [keys, args] = [others.slice(0, Number(count)), others.slice(Number(count))]
      return { script: { plain: text, keyLocking: text }, keys: keys.map(own), args: args.map(own) }
    }),
  )
}

type Isolate = ReturnType<typeof createIsolate>

interface AskInit extends RequestInit {
  origin: NonNullable<Step['origin']>
  /** Called if the body of the origin stays open. @param end ends it */
  onOpen(end: () => void): void
}

function createIsolate(
  config: Config,
  { store, admin }: OpenStore,
  { variables, nowMs }: { variables: Readonly<Record<string, string>>; nowMs: () => number },
) {
  const { timer, ring } = timersBy(nowMs)
  let underWay = 0
  let asked: Pick<AskInit, 'origin' | 'onOpen'>
  const isolate = {
    isStoreAway: false,
    trips: [] as Trip[],
    ring,
    stop: () => gateway.stop(),
    async ask(path: string, { origin, onOpen, ...init }: AskInit): Promise<Response> {
      asked = { origin, onOpen }
      return await gateway.app.request(`http://gateway.test${path}`, init)
    },
    /** Waits until all started work is done, and no new work follows from it. */
    async settled(): Promise<void> {
      for (let quiet = 0; quiet < 5; quiet = underWay > 0 ? 0 : quiet + 1)
        await new Promise(resolve => setImmediate(resolve))
    },
  }

  async function tripTo<R extends readonly unknown[]>(
    calls: readonly RecordedCall[],
    send: () => Promise<R>,
    way?: Trip['admin'],
  ): Promise<R> {
    if (isolate.isStoreAway)
      throw new GatewayError('ERR_STORE_UNREACHABLE', 'The store is away.', { fate: 'not-sent' })
    underWay += 1
    try {
      const replies = await send()
      isolate.trips.push({ ...(way && { admin: way }), calls, replies })
      return replies
    } finally {
      underWay -= 1
    }
  }

  const decisions: Store = {
    ...store,
    run: (calls, listener) =>
      tripTo(
        calls.map(call =>
          'script' in call
            ? { command: ['EVALSHA', noted(call.script.plain), call.keys.length, ...call.keys, ...call.args] }
            : { command: [call.command, call.key] },
        ),
        () => store.run(calls, listener),
      ),
  }
  const connection: AdminConnection = {
    ...admin,
    decisions,
    run: async <T extends Reply>(...command: Command) =>
      (await tripTo([withDigest(command)], async () => [await admin.run<T>(...command)], 'run'))[0]!,
    runEach: <T extends Reply>(commands: readonly Command[]) =>
      tripTo(commands.map(withDigest), () => admin.runEach<T>(commands), 'runEach'),
    transact: commands => tripTo(commands.map(withDigest), () => admin.transact(commands), 'transact'),
  }
  const gateway = createGateway(
    config,
    decisions,
    { ...ALL_PARTS, ...METRICS_PARTS, ...api, scriptsOf, scriptsOfLimits: scriptsOf },
    {
      ...{ variables, connection, timer: timer as Timer },
      clock: { now: nowMs, elapsed: nowMs },
      sleep: async () => {},
      limiter: { clock: { sleep: async () => {}, timer }, waitUntil: task => void task.catch(() => {}) },
      reporting: { timer },
      fetchOrigin: async () => {
        const { headers = {}, body = {}, isOpen } = asked.origin
        const init = { headers: { 'content-type': 'application/json', ...headers } }
        if (!isOpen) return new Response(JSON.stringify(body), init)
        const { readable, writable } = new TransformStream()
        asked.onOpen(() => {
          const writer = writable.getWriter()
          void writer.write(new TextEncoder().encode(JSON.stringify(body)))
          void writer.close()
        })
        return new Response(readable, init)
      },
    },
  )
  return isolate
}

/** The scripts that isolates of this version have sent, by SHA-1. */
export const sentScripts = new Map<string, ScriptText>()

function noted(text: ScriptText): string {
  sentScripts.set(text.sha1, text)
  return text.sha1
}

const withDigest = ([name, ...words]: Command): RecordedCall => ({
  command:
    name === 'EVAL'
      ? [name, noted({ source: String(words[0]), sha1: sha1(String(words[0])) }), ...words.slice(1)]
      : [name, ...words],
})

const compiledScripts = new Map<string, RuleSetScripts>()

/** Compiles the scripts of each rule set only once: each step has an isolate of its own. */
function scriptsOf(shape: RuleSetShape): RuleSetScripts {
  const key = JSON.stringify(shape)
  const scripts = compiledScripts.get(key) ?? compileScripts(shape)
  compiledScripts.set(key, scripts)
  return scripts
}

const SHOWN_HEADERS = ['ratelimit', 'ratelimit-policy', 'retry-after', 'sluice-degraded', 'content-type']

async function answerOf(response: Response, isOpen = false): Promise<Answer> {
  const headers = Object.fromEntries([...response.headers].filter(([name]) => SHOWN_HEADERS.includes(name)))
  if (isOpen && response.ok) {
    // Read, so that its end is noticed.
    void response.text()
    return { status: response.status, headers }
  }
  const text = await response.text()
  const isJson = /json/.test(response.headers.get('content-type') ?? '')
  const parsed = isJson ? (JSON.parse(text) as Record<string, unknown>) : undefined
  if (!parsed) return { status: response.status, headers, body: text }
  const { receipt, ...body } = parsed
  const sent = { status: response.status, headers, body: withoutRequestIds(body) }
  return { ...sent, ...(receipt ? { receipt: receipt as Receipt } : {}) }
}

/** The ids of requests are random. */
function withoutRequestIds(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutRequestIds)
  if (typeof value !== 'object' || value === null) return value
  const members = Object.entries(value).filter(([name]) => name !== 'requestId')
  return Object.fromEntries(members.map(([name, member]) => [name, withoutRequestIds(member)]))
}
