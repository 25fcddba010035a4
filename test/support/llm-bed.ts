/**
 * examples/llm with all real parts: Workers in workerd, a fake API of language models, the REST bridge and a Redis that can be stopped.
 * Windows are longer than those of the example, so that no test depends on the time of day.
 */
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { Config } from '../../src/config/compile.ts'
import { bindRule } from '../../src/limiter/bind.ts'
import { prepareDecide } from '../../src/limiter/prepared-call.ts'
import { startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { startGuardian } from '../../src/node/start/guardian.ts'
import { type RunningWorker, startWorker } from '../../src/node/start/worker.ts'
import { type AdminStore, createAdminStore } from '../../src/ops/admin-store.ts'
import { countersOf } from '../../src/ops/caller-identity.ts'
import { createKey } from '../../src/ops/keys.ts'
import { answerOf } from '../../src/ops/limits.ts'
import { gatewayRuleSet } from '../../src/script/compiled.ts'
import { type CountingProxy, startCountingProxy } from './counting-proxy.ts'
import { type LlmPlan, startLlmOrigin } from './llm-origin.ts'
import { PATIENT_MS } from './patience.ts'
import { copyExample } from './queue-examples.ts'
import { type RedisProcess, startRedisProcess } from './redis-process.ts'
import { reservationsOf as reservationsIn } from './reservations.ts'
import { type RunningServer, startServer } from './serve.ts'

const TOKEN = 'a token for tests'

/** At least the longest deadline of a Worker. */
const BRIDGE_MS = 60_000

/** Changes to the example, as JSON. */
export interface Variant {
  usage?: 'openai' | 'anthropic' | 'gemini'
  /** Another API than `LlmBed.origin`. */
  originUrl?: string
  /** Of reservations. */
  ttl?: string
  onUnsettled?: 'keep' | 'release'
  /** Default: `local`, whose decisions are not in the books of the store. */
  onStoreFailure?: 'local' | 'closed'
  /** Tokens of a team. */
  tokens?: number
  /** Requests of a team. */
  requests?: number
  /** Refuse what is not JSON. */
  refusesFiles?: boolean
  /** No rule counts tokens. */
  isWithoutUnits?: boolean
  /** How long a decision may take, and how many of an isolate may wait for one. */
  deadlineMs?: number
  maxInFlight?: number
}

/** What the store counts for a team. */
export interface Books {
  /** With what is reserved, and with debt. */
  used: number
  /** The estimates of the reservations that live. */
  reserved: number[]
}

export interface LlmBed {
  folder: string
  redis: RedisProcess
  /** Between the Workers and the bridge. */
  store: CountingProxy
  origin: Awaited<ReturnType<typeof startLlmOrigin>>
  /** The URLs of Workers whose runtime has ended unexpectedly and was restarted: without file descriptors, for example. */
  restarted: ReadonlySet<string>
  /** For the bindings of a Worker. */
  bindings: Record<string, string>
  start(variant?: Variant): Promise<RunningWorker>
  /** Starts `sluicegate serve` with so many workers, on the same store. */
  serve(workers: number, variant?: Variant): Promise<RunningServer>
  key(team: string): Promise<string>
  books(team: string): Promise<Books>
  /** The reservations of a team that live, under any config. `until`: ms since the epoch. */
  reservations(team: string): Promise<{ estimate: number; until: number }[]>
  close(): Promise<void>
}

/** Adapts the example's config, which is beside this file. */
const configOf = (variant: Variant) => `
import example from './sluice.config.ts'
const { usage = 'openai', onStoreFailure = 'local', ttl = '10m', onUnsettled = 'keep', tokens = 1_000_000, requests = 500, refusesFiles, isWithoutUnits, deadlineMs = ${PATIENT_MS}, maxInFlight = 1000 } = ${JSON.stringify(variant)}
const actual = {
  openai: example.units.tokens.actual,
  anthropic: { usage },
  gemini: { usage },
}[usage]
const [minute, day] = example.rules
const rules = [{ ...minute, limit: requests }, { ...day, limit: tokens }].map(rule => ({ ...rule, period: '300d', onStoreFailure }))
export default {
  ...example,
  store: { deadline: deadlineMs + 'ms', maxInFlight },
  log: { perSecond: 0 },
  ...(isWithoutUnits
    ? { units: undefined, rules: rules.slice(0, 1) }
    : { units: { tokens: { ...example.units.tokens, actual, ttl, onUnsettled, ...(refusesFiles && { estimateUnreadable: undefined }) } }, rules }),
}
`

export async function startLlmBed(): Promise<LlmBed> {
  const parts: { close(): Promise<unknown> }[] = []
  const close = async () => {
    for (const part of parts.splice(0).reverse()) await part.close()
  }
  const guardian = startGuardian()
  parts.push({ close: () => guardian.dismiss() })
  const folder = mkdtempSync(join(tmpdir(), 'sluice-llm-'))
  guardian.guard({ directory: folder })
  copyExample('llm', folder)
  const redis = await startRedisProcess({ appendonly: 'yes', appendfsync: 'always' })
  parts.push(redis)
  const bridge = await startBridge({ redisUrl: redis.url, token: TOKEN, port: 0, deadlineMs: BRIDGE_MS })
  parts.push(bridge)
  const store = await startCountingProxy(bridge.url)
  parts.push(store)
  const origin = await startLlmOrigin()
  parts.push(origin)
  const admin = createAdminStore({ url: bridge.url, token: TOKEN })
  const bindings = {
    ...{ UPSTASH_REDIS_REST_URL: store.url, UPSTASH_REDIS_REST_TOKEN: TOKEN, ORIGIN_URL: origin.url },
  }
  const restarted = new Set<string>()
  let files = 0
  let config: Config

  /** Writes the config of a variant beside the example. */
  async function writeConfig(variant: Variant): Promise<{ configFile: string; directory: string }> {
    const directory = join(folder, `variant-${++files}`)
    const configFile = `${directory}.config.ts`
    writeFileSync(configFile, configOf(variant))
    const { default: input } = await import(pathToFileURL(configFile).href)
    if (!variant.isWithoutUnits) config = checkedConfig(input)
    return { configFile, directory }
  }

  return {
    ...{ folder, redis, store, origin, restarted, bindings, close },
    async start(variant = {}) {
      const worker: RunningWorker = await startWorker({
        ...(await writeConfig(variant)),
        ...{ guardian, host: '127.0.0.1', port: 0, watch: false },
        bindings: { ...bindings, ORIGIN_URL: variant.originUrl ?? origin.url },
        onMessage: ({ type }) => type === 'restarted' && restarted.add(worker.url),
      })
      parts.push(worker)
      return worker
    },
    async serve(workers, variant = {}) {
      const { configFile } = await writeConfig(variant)
      const variables = { REDIS_URL: redis.url, ORIGIN_URL: variant.originUrl ?? origin.url }
      const server = await startServer(variables, ['--workers', String(workers)], configFile)
      parts.push({
        async close() {
          server.kill('SIGTERM')
          await server.exited
        },
      })
      return server
    },
    key: async team => (await createKey(admin, { consumer: team })).key,
    books: team => booksOf(admin, config, team),
    reservations: team => reservationsOf(admin, config, team),
  }
}

async function tokenRule(admin: AdminStore, config: Config, team: string) {
  const { rules, keyOf } = await countersOf(admin, config, { consumer: team })
  const rule = rules.find(({ unit }) => unit === 'tokens')!
  return { rule, key: keyOf(rule) }
}

/** What the store counts for a team under the rule of tokens. If nothing is reserved, all that was reserved before is settled in `used`. */
export async function booksOf(admin: AdminStore, config: Config, team: string): Promise<Books> {
  const reservations = await reservationsOf(admin, config, team)
  const { rule, key } = await tokenRule(admin, config, team)
  const evaluation = { ruleSet: gatewayRuleSet(config), rules: [bindRule(rule, key, 1, Date.now())] }
  const { verdicts } = await answerOf(admin, prepareDecide(evaluation, 'peek'))
  const { remaining, debt = 0 } = verdicts[0]!
  return { used: rule.limit - remaining + debt, reserved: reservations.map(({ estimate }) => estimate) }
}

async function reservationsOf(admin: AdminStore, config: Config, team: string) {
  const { key } = await tokenRule(admin, config, team)
  const found = await reservationsIn((...command) => admin.run(...command), admin.at(key))
  return found
    .filter(({ end }) => end >= Date.now())
    .map(({ end: until, units: [estimate = 0] }) => ({ estimate, until }))
}

/** The SDKs of a team. @param worker its URL */
export function sdksOf(worker: string, apiKey: string, plan: LlmPlan = {}) {
  const options = { apiKey, defaultHeaders: { 'x-llm': JSON.stringify(plan) }, maxRetries: 0 }
  return {
    openai: new OpenAI({ ...options, baseURL: `${worker}/v1` }),
    anthropic: new Anthropic({ ...options, baseURL: worker }),
  }
}

/** All tokens that the origin has reported or would have reported, if it has not sent the end. */
export const tokensOf = (calls: LlmBed['origin']['calls']) =>
  calls.reduce(
    (sum, { tokens: { input, output, cached, cacheWrite } }) => sum + input + output + cached + cacheWrite,
    0,
  )
