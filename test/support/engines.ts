/** The two engines that make decisions: the TypeScript model, and the script inside a Redis. Tests run on both. */
import { serialize } from 'node:v8'
import { afterAll, beforeAll, describe } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import type { Config, Rule } from '../../src/config/compile.ts'
import {
  type PreparedCall,
  prepareDecide,
  preparePause,
  prepareRefund,
  prepareReset,
} from '../../src/limiter/prepared-call.ts'
import { Lru } from '../../src/lru.ts'
import type { Command, RedisConnection, Reply } from '../../src/node/rest-bridge/redis-connection.ts'
import type { BoundRule, Evaluation, Outcome } from '../../src/script/evaluation.ts'
import { type GuardArguments, guardCall } from '../../src/script/guard.ts'
import { ScriptModel } from '../../src/script/model.ts'
import type { Pause, PauseResult } from '../../src/script/pause.ts'
import type { ChangeResult, Refund } from '../../src/script/refund.ts'
import type { Reset } from '../../src/script/reset.ts'
import type { RuleSet } from '../../src/script/rule-set-shape.ts'
import { encodeSync, isSyncReply, type Message } from '../../src/script/sync.ts'
import { syncScript } from '../../src/script/sync-text.ts'
import { formatCredential } from '../../src/store/records.ts'
import type { Script, ScriptCall, ScriptText } from '../../src/store/store.ts'
import { type RedisKind, randomCases, SELECTION } from '../selection.ts'
import { describeOnRedis, type TestRedis } from './redis.ts'
import { ruleSetOf } from './rule-set.ts'

type At<T> = T & { now: number }

/** An evaluation without a rule set. The rule set is made from its rules. */
export type Untimed = Omit<Evaluation, 'ruleSet'> & { plans: readonly string[] }
export type TimedEvaluation = At<Untimed>
export type TimedRefund = At<Omit<Refund, 'ruleSet'>>

export interface Engine {
  evaluate(evaluation: TimedEvaluation): Promise<Outcome>
  /** Returns what `evaluate` would return, and spends nothing. */
  peek(evaluation: TimedEvaluation): Promise<Outcome>
  refund(refund: TimedRefund): Promise<ChangeResult>
  reset(reset: At<Reset>): Promise<ChangeResult>
  pause(pause: At<Pick<Pause, 'key' | 'length'>>): Promise<PauseResult>
  /** Sends the units that isolates hold, without a request. @returns those of the last message's holder */
  sync(messages: readonly Message[], now: number): Promise<number>
  /** Stores the record of a credential or a consumer, or a pointer. */
  setRecord(key: string, text: string): Promise<void>
  /** The exact content of all keys that match the pattern. Always empty for the model. */
  snapshot(pattern?: string): Promise<Record<string, string>>
}

export class ModelEngine implements Engine {
  readonly #model = new ScriptModel()
  evaluate = async (evaluation: TimedEvaluation) => this.#model.decide(modelled(evaluation))
  peek = async (evaluation: TimedEvaluation) => this.#model.decide(modelled(evaluation), 'peek')
  refund = async (refund: TimedRefund) => this.#model.refund(refund)
  reset = async (reset: At<Reset>) => this.#model.reset(reset)
  pause = async (pause: At<Pick<Pause, 'key' | 'length'>>) => this.#model.pause(pause)
  sync = async (messages: readonly Message[], now: number) => this.#model.sync(messages, now)
  setRecord = async (key: string, text: string) => this.#model.setRecord(key, text)
  snapshot = async () => ({})
}

/** Of the audit trail. */
export const ENTRY = {
  stream: 'sluice:{l:audit}:audit',
  values: ['process', '', 'limits.pause', 'any', '{}', '', '', '1000', '1'],
}

export class RedisEngine implements Engine {
  readonly #connection: RedisConnection
  readonly #buildOf: (script: Script) => ScriptText
  readonly kind: RedisKind | undefined
  readonly #loopsFrom: number | undefined
  #guard: GuardArguments | undefined

  /**
   * @param buildOf chooses the text of a script
   * @param loopsFrom the size from which the scripts of a rule set have loops (rule-set-text.ts)
   */
  constructor(
    connection: RedisConnection,
    buildOf: (script: Script) => ScriptText = ({ plain }) => plain,
    kind?: RedisKind,
    loopsFrom?: number,
  ) {
    this.#connection = connection
    this.#buildOf = buildOf
    this.kind = kind
    this.#loopsFrom = loopsFrom
  }

  /** The same Redis, with loops in all scripts. */
  withLoops(): RedisEngine {
    return new RedisEngine(this.#connection, this.#buildOf, this.kind, 1)
  }

  /** The same Redis, with a guard in front of all scripts but those about units in flight. */
  guardedBy(guard: GuardArguments): RedisEngine {
    const engine = new RedisEngine(this.#connection, this.#buildOf, this.kind, this.#loopsFrom)
    engine.#guard = guard
    return engine
  }

  evaluate = (evaluation: TimedEvaluation) => this.ask(prepareDecide(compiled(evaluation, this.#loopsFrom)))
  peek = (evaluation: TimedEvaluation) =>
    this.ask(prepareDecide(compiled(evaluation, this.#loopsFrom), 'peek'))
  refund = (refund: TimedRefund) => this.ask(prepareRefund(compiledRefund(refund, this.#loopsFrom)))
  reset = (reset: At<Reset>) => this.ask(prepareReset(reset))
  pause = (pause: At<Pick<Pause, 'key' | 'length'>>) => this.ask(preparePause({ ...pause, entry: ENTRY }))

  /** @returns the units of the last message's holder */
  async sync(messages: readonly Message[], now: number): Promise<number> {
    const reply = await this.run(encodeSync(syncScript(), messages, now))
    if (!isSyncReply(reply)) throw new Error(`Not the reply to messages: ${JSON.stringify(reply)}`)
    return reply[1]
  }

  /** Runs a call as it is. */
  async ask<T>({ call, decode }: PreparedCall<T>): Promise<T> {
    const own = call as ScriptCall
    return decode(await this.run(this.#guard ? await guardCall(own, this.#guard) : own))
  }

  async setRecord(key: string, text: string): Promise<void> {
    await this.#connection.send(['SET', key, text])
  }

  async snapshot(pattern = '*'): Promise<Record<string, string>> {
    const keys = ((await this.#connection.send(['KEYS', pattern])) as Buffer[]).map(String).sort()
    const contents = await Promise.all(keys.map(key => this.#contentOf(key)))
    return Object.fromEntries(keys.flatMap((key, i) => (contents[i] ? [[key, contents[i]]] : [])))
  }

  /** Value and expiry of a key, or undefined if it has expired. The embedded Redis has no DUMP, so GET is used: all values are strings. */
  async #contentOf(key: string): Promise<string | undefined> {
    const expiry = await this.#connection.send(['PEXPIRETIME', key])
    const value = await this.#connection.send(['DUMP', key]).catch(() => this.#connection.send(['GET', key]))
    return value === null ? undefined : `${(value as Buffer).toString('hex')} until ${expiry}`
  }

  async run({ script, keys, args }: ScriptCall): Promise<unknown> {
    const { sha1, source } = this.#buildOf(script)
    const rest = [String(keys.length), ...keys, ...args]
    try {
      return textOf(await this.#connection.send(['EVALSHA', sha1, ...rest]))
    } catch (error) {
      if (!String(error).includes('NOSCRIPT')) throw error
      return textOf(await this.#connection.send(['EVAL', source, ...rest]))
    }
  }

  send(command: Command): Promise<Reply> {
    return this.#connection.send(command)
  }
}

/** Converts an evaluation for the model, which needs no compiled rule set. */
export const modelled = ({ plans, ...evaluation }: TimedEvaluation) => {
  const leases = evaluation.rules.some(({ rule }) => rule.lease)
  return { ...evaluation, ruleSet: { plans, leases } }
}

/** Adds a rule set that is made from the rules. Rules with the same key share an identity. */
export function compiled<T extends Untimed>(
  { plans, ...evaluation }: T,
  loopsFrom?: number,
): Omit<T, 'plans'> & Evaluation {
  const { rules, subject } = evaluation as unknown as Untimed
  const hasSubject = subject !== undefined || rules.some(({ rule }) => rule.on === 'auth-failure')
  const ruleSet = ruleSetFor(rules, { plans, hasSubject }, loopsFrom)
  return { ...evaluation, ruleSet } as unknown as Omit<T, 'plans'> & Evaluation
}

export function compiledRefund(refund: TimedRefund, loopsFrom?: number): At<Refund> {
  return { ...refund, ruleSet: ruleSetFor(refund.rules, { plans: [], hasSubject: false }, loopsFrom) }
}

/** Bounded: each rule set has the text of its scripts, and 100,000 random requests have as many. */
const ruleSets = new Lru<RuleSet>({ size: 100 })

/** The rule set that is made from the rules, compiled once. Rules with the same key share an identity. */
export function ruleSetFor(
  rules: readonly Pick<BoundRule, 'rule' | 'key'>[],
  { plans, hasSubject }: { plans: readonly string[]; hasSubject: boolean },
  loopsFrom?: number,
): RuleSet {
  const keys = [...new Set(rules.map(({ key }) => key))]
  const shape = JSON.stringify([
    rules.map(
      ({
        rule: { name, algorithm, tag, quota, match, takesOverrides, family, on, calendar, lease, settlement },
        key,
      }) => [
        ...[
          name,
          algorithm,
          tag,
          quota,
          match.plans,
          takesOverrides,
          family,
          on,
          calendar,
          lease,
          settlement,
          keys.indexOf(key),
        ],
      ],
    ),
    ...[plans, hasSubject, loopsFrom],
  ])
  const ruleSet = ruleSets.get(shape) ?? ruleSetOf(rules, { plans, hasSubject }, loopsFrom)
  ruleSets.set(shape, ruleSet)
  return ruleSet
}

/** A snapshot without the keys that have expired by `nowMs`, for tests that may take longer than a key lives. */
export function aliveAt(nowMs: number, snapshot: Record<string, string>): Record<string, string> {
  const isAlive = (content: string) => {
    const expiry = Number(content.split(' until ')[1])
    return expiry === -1 || expiry > nowMs
  }
  return Object.fromEntries(Object.entries(snapshot).filter(([, content]) => isAlive(content)))
}

/** Describes a suite that runs on the model and on every installed Redis. `fresh` returns an engine without state. */
export function describeOnEngines(name: string, suite: (fresh: () => Promise<Engine>) => void): void {
  describe(`${name}, on the model`, () => suite(async () => new ModelEngine()))
  const describeOnRedis = SELECTION === 'all' ? describeInBothForms : describeOnRedisEngine
  describeOnRedis(name, suite)
}

/** Describes a suite on every installed Redis, and again with loops in all scripts, however few rules there are. */
export function describeInBothForms(
  name: string,
  suite: (fresh: () => Promise<RedisEngine>, kind: RedisKind) => void,
): void {
  describeOnRedisEngine(name, suite)
  describeOnRedisEngine(`${name}, with loops`, (fresh, kind) =>
    suite(async () => (await fresh()).withLoops(), kind),
  )
}

export function describeOnRedisEngine(
  name: string,
  suite: (fresh: () => Promise<RedisEngine>, kind: RedisKind) => void,
): void {
  describeOnRedis(name, (start, kind) => {
    let redis: TestRedis
    beforeAll(async () => {
      redis = await start()
    })
    afterAll(() => redis?.close())
    suite(async () => {
      await redis.connection.send(['FLUSHALL'])
      return new RedisEngine(redis.connection, undefined, kind)
    }, kind)
  })
}

/** The number of random runs on an engine. @param runs on the model, or on a real Redis, with `npm run test:all` */
export function runsFor(engine: Engine, runs: number): number {
  return randomCases(runs, engine instanceof RedisEngine ? engine.kind : undefined)
}

/** The record of a credential, with or without its own plan. */
export function credentialOf(plan?: string, mode?: 'test'): string {
  const label = 'a label with mode=test'
  return formatCredential({
    createdAt: new Date('2026-01-01'),
    label,
    ...(plan && { plan }),
    ...(mode && { mode }),
  })
}

/** Compiles rules. */
export function rulesOf(...rules: RuleInput[]): readonly Rule[] {
  return configOf({ rules }).rules
}

/** Configs by their text, because many tests compile the same one again and again. */
const configs = new Lru<Config>({ size: 200 })

export function configOf(config: Partial<ConfigInput> & Pick<ConfigInput, 'rules'>): Config {
  const text = textOfConfig(config)
  const known = text === undefined ? undefined : configs.get(text)
  if (known) return known
  // Statistics and the breaker are off: few tests are about them, and in other tests they would add calls to the store or depend on the
  // speed of the machine.
  const store = { breaker: false, ...config.store } as const
  const compiled = checkedConfig({ origin: 'http://origin.test', stats: { keep: false }, ...config, store })
  if (text !== undefined) configs.set(text, compiled)
  return compiled
}

/** A text that no other config has. Absent for a config with functions. */
function textOfConfig(config: unknown): string | undefined {
  try {
    return serialize(config).toString('latin1')
  } catch {
    return undefined
  }
}

/** Converts a reply to the form of the REST protocol: text instead of Buffers. */
function textOf(reply: Reply): unknown {
  if (Array.isArray(reply)) return reply.map(textOf)
  return Buffer.isBuffer(reply) ? reply.toString() : reply
}
