/**
 * The model predicts every reply of a compiled rule set, for random configs and random requests that use some of the rules, bound like
 * those of the gateway and of limits by name. Between requests the records of consumers change, units are given back, budgets are
 * reset, and the records in states are reordered. Each rule set is compiled to straight-line code and to loops, each with a Redis of its
 * own: both send the same replies and store the same bytes.
 */

import { isDeepStrictEqual } from 'node:util'
import * as fc from 'fast-check'
import { expect, it, onTestFinished } from 'vitest'
import { ALGORITHM_NAMES } from '../../src/algorithms/index.ts'
import type { Rule } from '../../src/config/compile.ts'
import { countsInFlight } from '../../src/config/compile-rule.ts'
import type { Credential } from '../../src/credentials/credential.ts'
import { bindRules, type DemandedRule } from '../../src/limiter/bind.ts'
import {
  type PreparedCall,
  prepareDecide,
  prepareRefund,
  prepareReset,
} from '../../src/limiter/prepared-call.ts'
import { AdminError } from '../../src/ops/admin-error.ts'
import { compileOverride } from '../../src/ops/overrides.ts'
import type { BoundRule, Evaluation, Outcome, Subject, Verdict } from '../../src/script/evaluation.ts'
import { ScriptModel } from '../../src/script/model.ts'
import type { ChangeResult, Refund } from '../../src/script/refund.ts'
import { createGatewayRuleSet, createLimitRuleSet } from '../../src/script/rule-set.ts'
import type { RuleSet, RuleSetShape } from '../../src/script/rule-set-shape.ts'
import { decideText } from '../../src/script/rule-set-text.ts'
import { compileScripts } from '../../src/script/scripts.ts'
import { writtenNumbers } from '../../src/script/wire.ts'
import { demandRules } from '../../src/set-ups/http/demand-rules.ts'
import {
  consumerKey,
  credentialKey,
  limitStateKey,
  pointerKey,
  UNKNOWN_CONSUMER,
  UNKNOWN_CONSUMER_TAG,
} from '../../src/store/keys.ts'
import { formatConsumer, type Override } from '../../src/store/records.ts'
import type { ScriptCall } from '../../src/store/store.ts'
import { NO_SWITCHES, type RuleSwitch, type Switches } from '../../src/switches/switches.ts'
import { randomCases } from '../selection.ts'
import {
  type Checked,
  checked,
  configPlans,
  LIMIT,
  limitRulesOf,
  numbersFor,
  PLANS,
  traitsOf,
} from '../support/configs.ts'
import { credentialOf, describeOnRedisEngine, RedisEngine } from '../support/engines.ts'
import { expectShare, forEvery } from '../support/property.ts'
import { FC_PATH, SEED } from '../support/random.ts'
import { startRedis } from '../support/redis.ts'
import { type Cost, countsOfIsolates as counts, listOf, NOON, unitsFor } from '../support/traffic.ts'
import { after, pausesToAndFro } from '../support/waits.ts'

/** `npm run test:soak` makes many more. */
const REQUESTS = Number(process.env.PARITY_REQUESTS ?? 2000)
const MAX_STEPS = REQUESTS > 10_000 ? 150 : 60
/** The average number of steps in a run that call a script. Lists have half the maximum length on average, and some are kept short. */
const MEAN_VERBS = 0.33 * MAX_STEPS
/** The embedded Redis takes a few milliseconds for each decision, and more on a busy machine. */
const TIMED = { timeout: 60_000 + 20 * REQUESTS }

/** Few consumers, so that requests often meet the same counters and records. */
const CONSUMERS = ['acme', 'globex'] as const
const consumer = fc.constantFrom(...CONSUMERS, 'acme' as const)

/** Index of a rule, modulo the number of rules. */
const place = fc.nat(39)
const selection = fc.oneof(
  { weight: 3, arbitrary: fc.constant<{ without: number[] } | { only: number[] }>({ without: [] }) },
  { weight: 2, arbitrary: fc.record({ without: fc.array(place, { maxLength: 8 }) }) },
  { weight: 1, arbitrary: fc.record({ only: fc.array(place, { maxLength: 4 }) }) },
)

const SUBJECTS = ['none', 'key', 'pointer', 'token', 'token of a plan', 'failed'] as const
type SubjectKind = (typeof SUBJECTS)[number]

const plan = fc.constantFrom(undefined, 'gone', ...PLANS)
const request = {
  // Often without a pause: with many rules, requests would rarely reach a limit otherwise.
  pause: fc.oneof({ weight: 1, arbitrary: fc.constant(0) }, { weight: 1, arbitrary: pausesToAndFro }),
  subject: fc.constantFrom<SubjectKind>('key', 'key', 'key', ...SUBJECTS, 'pointer', 'token'),
  consumer,
  claimed: plan,
  address: fc.constantFrom('192.0.2.1', '192.0.2.1', '192.0.2.2'),
  route: fc.constantFrom('reports', 'reports', undefined),
  selection,
  /** The cost of the route. */
  factor: fc.constantFrom(1, 1, 1, 1, 1, 1, 2, 0),
  /** Replaces the costs of the rules. */
  counts: fc.oneof({ weight: 2, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: counts }),
  /** With leases: for how many requests to spend. */
  wantedRequests: fc.oneof(
    { weight: 1, arbitrary: fc.constant(undefined) },
    { weight: 1, arbitrary: fc.integer({ min: 1, max: 20 }) },
    { weight: 1, arbitrary: fc.integer({ min: 1, max: 5000 }) },
  ),
  switched: fc.array(
    fc.record({ of: place, mode: fc.constantFrom('shadow' as const, 'off' as const, 'enforce' as const) }),
    {
      maxLength: 3,
      size: 'small',
    },
  ),
}
/** Index of an earlier admitted request; -1 is the latest. */
const admission = fc.integer({ min: -6, max: -1 })

/** When something ends, in µs from now. Negative: it has ended. */
const end = fc.option(fc.integer({ min: -1e5, max: 1e6 }), { nil: undefined })
const override = fc.record({
  of: place,
  limit: fc.option(fc.constantFrom(1, 2, 3, 5, 9, 40, 120, 2000, 5000), { freq: 2, nil: undefined }),
  atOnce: fc.option(fc.integer({ min: 1, max: 9 }), { nil: undefined }),
  mode: fc.constantFrom(undefined, undefined, 'enforce' as const, 'shadow' as const, 'off' as const),
  end,
})

const step = fc.oneof(
  { weight: 24, arbitrary: fc.record({ verb: fc.constant('decide' as const), ...request }) },
  { weight: 2, arbitrary: fc.record({ verb: fc.constant('peek' as const), ...request }) },
  {
    weight: 2,
    arbitrary: fc.record({
      verb: fc.constant('refund' as const),
      pause: pausesToAndFro,
      admission,
      units: fc.constantFrom<number | 'all'>('all', 'all', 1, 0, 2, 1e9),
      kept: fc.constantFrom(0, 0, 1, 3),
      /** In µs after the admission. */
      late: fc.constantFrom(0, 0, 0, 1, -1),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      verb: fc.constant('reset' as const),
      pause: pausesToAndFro,
      admission,
      selection,
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      verb: fc.constant('hand over' as const),
      pause: pausesToAndFro,
      admission,
      plan: fc.constantFrom(...PLANS),
      of: place,
      units: fc.constantFrom(1, 2, 5),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      verb: fc.constant('move' as const),
      consumer,
      plan,
      kind: fc.constantFrom('credential', 'nonsense', 'pointer'),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      verb: fc.constant('override' as const),
      consumer,
      plan,
      overrides: fc.array(override, { maxLength: 5 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ verb: fc.constant('block' as const), consumer, end }) },
  { weight: 1, arbitrary: fc.constant({ verb: 'shuffle' as const }) },
)
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never
type RequestStep = Extract<Step, { verb: 'decide' | 'peek' }>
type Of<Verb extends Step['verb']> = Extract<Step, { verb: Verb }>

const scenario = fc.record({
  config: configPlans,
  setUp: fc.constantFrom('gateway' as const, 'gateway' as const, 'gateway' as const, LIMIT as 'limit'),
  steps: listOf(step, MAX_STEPS),
})

/** An admitted request. Its keys include the consumer, even if only the store knew it. */
interface Admitted {
  ruleSet: RuleSet
  rules: readonly BoundRule[]
  plan: string
  consumerKey?: string
  verdicts: readonly Verdict[]
  /** For how many requests it has spent. */
  granted: number
  at: number
}

const digestOf = (name: string) => `${name}-digest`

function credentialFor({ subject, consumer, claimed }: RequestStep): Credential | undefined {
  const digest = digestOf(consumer)
  const keysOf = (name: string) => ({
    consumerKey: consumerKey(name),
    credentialKey: credentialKey(name, digest),
  })
  const common = { method: 'api-key' as const, digest, header: 'authorization', isVerified: false, consumer }
  switch (subject) {
    case 'none':
      return undefined
    case 'key':
    case 'failed':
      return { ...common, subject: { kind: 'key', ...keysOf(consumer) } }
    case 'pointer': {
      const keys = { ...keysOf(UNKNOWN_CONSUMER), pointerKey: pointerKey(digest) }
      return { ...common, consumer: UNKNOWN_CONSUMER, subject: { kind: 'pointer', ...keys } }
    }
    default: {
      const plan = subject === 'token of a plan' && claimed !== undefined ? { plan: claimed } : {}
      return { ...common, subject: { kind: 'token', consumerKey: consumerKey(consumer), ...plan } }
    }
  }
}

/** One run: the same steps under the rules of one config, in a store and in the model. */
class Run {
  readonly #engines: Engines
  readonly #model = new ScriptModel()
  readonly #checked: Checked
  /** Of straight-line code. */
  readonly ruleSet: RuleSet
  readonly #loops: RuleSet
  readonly rules: readonly Rule[]
  readonly #names: readonly string[]
  readonly #isGateway: boolean
  readonly #tally: Tally
  #admitted: Admitted[] = []
  #isShuffled = false
  #now = NOON
  #latest: readonly Verdict[] = []

  constructor(engines: Engines, checked: Checked, setUp: 'gateway' | 'limit', tally: Tally) {
    const { config } = checked
    this.#engines = engines
    this.#checked = checked
    this.#isGateway = setUp === 'gateway'
    this.#tally = tally
    const compile = (loopsFrom: number) => {
      const scriptsOf = (shape: RuleSetShape) => compileScripts(shape, loopsFrom)
      return this.#isGateway
        ? createGatewayRuleSet(config, scriptsOf)
        : createLimitRuleSet(limitRulesOf(config), scriptsOf)
    }
    this.ruleSet = compile(Number.POSITIVE_INFINITY)
    this.#loops = compile(1)
    this.rules = this.#isGateway ? config.rules : limitRulesOf(config)
    this.#names = [...new Set(this.rules.map(({ name }) => name))]
  }

  /** Stores the credentials, so that most requests have a valid one. */
  async start(): Promise<void> {
    for (const engine of this.#engines) await engine.send(['FLUSHALL'])
    for (const name of CONSUMERS) {
      await this.#setRecord(credentialKey(name, digestOf(name)), credentialOf())
      await this.#setRecord(pointerKey(digestOf(name)), name)
    }
  }

  async take(step: Step): Promise<void> {
    if ('pause' in step) this.#now = after(step.pause, this.#now, this.rules, this.#latest)
    switch (step.verb) {
      case 'decide':
      case 'peek':
        return await this.#ask(step)
      case 'refund':
        return await this.#refund(step)
      case 'reset':
        return await this.#reset(step)
      case 'hand over':
        return await this.#handOver(step)
      case 'move':
        return await this.#move(step)
      case 'override':
        return await this.#override(step)
      case 'block': {
        const until = step.end === undefined ? {} : { blockedUntil: this.#now + step.end }
        const record = { blockedAt: new Date(0), ...until, overrides: [] }
        return await this.#setRecord(consumerKey(step.consumer), formatConsumer(record))
      }
      case 'shuffle':
        return await this.#shuffle()
    }
  }

  async #ask(step: RequestStep): Promise<void> {
    const credential = this.#isGateway ? credentialFor(step) : undefined
    const bound = bindRules(
      await this.#demanded(step, credential),
      this.#switches(step),
      ({ name }) => name,
      this.#now / 1e3,
    )
    const rules = bound.map(each => this.#withHolding(each, step))
    const subject: Subject | undefined =
      step.subject === 'failed' && credential ? { kind: 'failed' } : credential?.subject
    // Without a rule and a record there is no call.
    if (rules.length === 0 && (subject === undefined || subject.kind === 'failed')) return
    const outcome = await this.#decide(
      {
        ...{ ruleSet: this.ruleSet, rules, now: this.#now },
        ...(subject && { subject }),
        ...(step.wantedRequests !== undefined && { wantedRequests: step.wantedRequests }),
      },
      step.verb,
    )
    this.#latest = outcome.verdicts
    if (step.verb === 'peek' || outcome.status !== 'admitted') return
    const named = (key: string) => key.replace(UNKNOWN_CONSUMER_TAG, `{c:${outcome.consumer}}`)
    this.#admitted.push({
      ruleSet: this.ruleSet,
      ...{ plan: outcome.plan, verdicts: outcome.verdicts, granted: outcome.granted ?? 1, at: this.#now },
      rules: rules.map(each => ({
        ...each,
        key: named(each.key),
        ...(each.sideKey && { sideKey: named(each.sideKey) }),
      })),
      ...(subject && 'consumerKey' in subject && { consumerKey: named(subject.consumerKey) }),
    })
  }

  /** A rule with numbers for several plans is there once for each of them, each time with the same holding. */
  #withHolding(bound: BoundRule, { counts }: RequestStep): BoundRule {
    const { rule } = bound
    const holding = counts?.[this.#names.indexOf(rule.name) % counts.length]?.holding
    return holding && countsInFlight(rule) ? { ...bound, holding } : bound
  }

  /** Binds rules like src/set-ups, but leaves some out and changes the costs of others. */
  async #demanded(step: RequestStep, credential: Credential | undefined): Promise<DemandedRule[]> {
    const { address, route, factor, counts } = step
    const isSelected = this.#filter(step.selection)
    const costOf = ({ name }: Rule): Cost | undefined =>
      counts?.[this.#names.indexOf(name) % counts.length]?.cost
    const withCost = (demanded: DemandedRule): DemandedRule => {
      const cost = demanded.rule.on === 'auth-failure' ? undefined : costOf(demanded.rule)
      // A rule with numbers for several plans is there once for each of them, each time with the same cost.
      const first = this.rules.find(({ name }) => name === demanded.rule.name)!
      return cost === undefined ? demanded : { ...demanded, cost: unitsFor(first, cost) }
    }
    if (!this.#isGateway) {
      const values = { account: step.consumer, user: address } as const
      const demanded = limitRulesOf(this.#checked.config)
        .filter(isSelected)
        .map(async rule => {
          const identity = rule.by.map(part => [part, values[part as keyof typeof values]] as const)
          return withCost({ rule, key: await limitStateKey(LIMIT, identity), cost: factor })
        })
      return await Promise.all(demanded)
    }
    const { config } = this.#checked
    const matched = {
      settings: { ...config.routeDefaults, cost: factor },
      rules: config.rules.filter(isSelected),
      classes: [],
    }
    const caller = { address, addressIdentity: address, ...(credential && { credential }) }
    const named = config.routes.find(({ name }) => name === route) ?? (route && { name: route })
    const demanded = await demandRules(
      REQUEST,
      caller,
      { ...matched, ...(named && { route: named as never }) },
      config.allow,
    )
    return demanded.map(withCost)
  }

  #filter(selection: RequestStep['selection']): (rule: Rule) => boolean {
    const places = 'without' in selection ? selection.without : selection.only
    const names = new Set(places.map(place => this.#names[place % this.#names.length]))
    return ({ name }) => names.has(name) === 'only' in selection
  }

  #switches({ switched }: RequestStep): Switches {
    const by = { at: new Date(0), by: 'test' }
    const rules = switched.map(({ of, mode }): [string, RuleSwitch] => [
      this.#names[of % this.#names.length]!,
      { ...by, mode },
    ])
    return { ...NO_SWITCHES, rules: new Map(rules) }
  }

  async #decide(evaluation: Evaluation & { now: number }, verb: 'decide' | 'peek'): Promise<Outcome> {
    const expected = this.#model.decide(evaluation, verb)
    const { answer, reply } = await this.#run(ruleSet => prepareDecide({ ...evaluation, ruleSet }, verb))
    expectEqual(answer, expected)
    this.#tally.decided(evaluation, verb, answer, (reply as unknown[])[0], this.#isShuffled)
    if (verb === 'decide') this.#isShuffled = false
    return answer
  }

  async #refund({ admission, units, kept, late }: Of<'refund'>): Promise<void> {
    const admitted = this.#admitted.at(admission)
    if (!admitted) return
    const { ruleSet, plan, consumerKey, at, granted } = admitted
    const rules = admitted.rules
      .filter(({ rule, role }) => rule.on === 'request' && role === 'spend')
      .filter(({ rule }) => admitted.verdicts.some(verdict => verdict.rule.name === rule.name))
      .filter(({ rule }) => rule.match.plans?.includes(plan) ?? true)
      .map(({ cost, ...bound }) => {
        const given = units === 'all' ? granted * cost : units
        // Overrides may have been changed since.
        const shown = admitted.verdicts.find(verdict => verdict.rule.name === bound.rule.name)!.rule
        return { ...bound, units: given, spent: given + kept, written: writtenNumbers(shown, bound.rule) }
      })
    if (rules.length === 0) return
    const refund: Refund & { now: number } = {
      ruleSet,
      rules,
      spentAt: at + late,
      consumerKey,
      plan,
      now: this.#now,
    }
    await this.#change('refund', this.#model.refund(refund), ruleSet => prepareRefund({ ...refund, ruleSet }))
  }

  async #reset({ admission, selection }: Of<'reset'>): Promise<void> {
    const rules = (this.#admitted.at(admission)?.rules ?? []).filter(({ rule }) =>
      this.#filter(selection)(rule),
    )
    if (rules.length === 0) return
    const reset = { rules, now: this.#now }
    await this.#change('reset', this.#model.reset(reset), () => prepareReset(reset))
  }

  async #change(
    verb: string,
    expected: ChangeResult,
    prepare: (ruleSet: RuleSet) => PreparedCall<ChangeResult>,
  ): Promise<void> {
    const { answer } = await this.#run(prepare)
    expectEqual(answer, expected)
    this.#latest = answer.verdicts
    this.#tally.count(verb)
  }

  /** Hands over local counts of an isolate, for one identity and the rules of one plan. */
  async #handOver({ admission, plan, of, units }: Of<'hand over'>): Promise<void> {
    const admitted = this.#admitted.at(admission)?.rules ?? []
    const rules = admitted.filter(({ rule, role }) => rule.on === 'request' && role === 'spend')
    const { key } = rules[of % rules.length] ?? {}
    const owed = rules
      .filter(bound => bound.key === key && (bound.rule.match.plans?.includes(plan) ?? true))
      .map(bound => ({ ...bound, cost: units, mode: 'shadow' as const }))
    const planned = owed.some(({ rule }) => rule.match.plans)
    if (owed.length === 0) return
    await this.#decide(
      { ruleSet: this.ruleSet, rules: owed, ...(planned && { plan }), now: this.#now },
      'decide',
    )
    this.#tally.count('hand over')
  }

  async #move({ kind, consumer, plan }: Of<'move'>): Promise<void> {
    if (kind === 'pointer') return await this.#setRecord(pointerKey(digestOf('acme')), consumer)
    const text = kind === 'nonsense' ? 'nonsense' : credentialOf(plan)
    await this.#setRecord(credentialKey(consumer, digestOf(consumer)), text)
  }

  async #override({ consumer, plan, overrides }: Of<'override'>): Promise<void> {
    const compiled = overrides.flatMap(each => this.#compiled(each) ?? [])
    const record = { ...(plan && { plan }), overrides: compiled }
    await this.#setRecord(consumerKey(consumer), formatConsumer(record))
  }

  /** The override as an operator would set it; undefined if the rule does not accept it. */
  #compiled({ of, limit, atOnce, mode, end }: Of<'override'>['overrides'][number]): Override | undefined {
    const { input, config } = this.#checked
    const overridable = new Set(
      config.rules.flatMap(({ name, takesOverrides }) => (takesOverrides ? [name] : [])),
    )
    const rules = input.rules!.filter(({ name }) => overridable.has(name))
    const rule = rules[of % rules.length]
    if (!rule) return undefined
    const units =
      limit === undefined ? {} : numbersFor(rule, { limit, ...(atOnce !== undefined && { atOnce }) })
    if (!units) return undefined
    try {
      const compiled = compileOverride(input, { rule: rule.name, ...units, ...(mode && { mode }) })
      // One tag in 238,328 is equal to that of another rule.
      if (this.rules.some(({ tag, name }) => tag === compiled.numbers?.tag && name !== rule.name))
        return undefined
      return end === undefined ? compiled : { ...compiled, until: this.#now + end }
    } catch (error) {
      if (error instanceof AdminError) return undefined
      throw error
    }
  }

  async #setRecord(key: string, text: string): Promise<void> {
    this.#model.setRecord(key, text)
    for (const engine of this.#engines) await engine.setRecord(key, text)
  }

  /** Reverses the records of every state, and adds a record of a rule that is in no config. */
  async #shuffle(): Promise<void> {
    for (const engine of this.#engines) await this.#shuffleIn(engine)
    this.#isShuffled = true
  }

  async #shuffleIn(redis: RedisEngine): Promise<void> {
    for (const key of (await redis.send(['KEYS', '*:state*'])) as Buffer[]) {
      if (/:(log|held):/.test(key.toString())) continue
      const state = (await redis.send(['GET', key])) as Buffer
      const records = Array.from({ length: state.length / 14 }, (_, i) => state.subarray(14 * i, 14 * i + 14))
      const unknown = Buffer.from(records[0]!)
      unknown.write('---', 'latin1')
      const hasUnknown = records.some(record => record.toString('latin1', 0, 3) === '---')
      await redis.send(['SET', key, Buffer.concat([...records.reverse(), ...(hasUnknown ? [] : [unknown])])])
    }
  }

  async #run<T>(prepare: (ruleSet: RuleSet) => PreparedCall<T>): Promise<{ answer: T; reply: unknown }> {
    const { call, decode } = prepare(this.ruleSet)
    const [straight, loops] = this.#engines
    const reply = await straight.run(call as ScriptCall)
    expectEqual(await loops.run(prepare(this.#loops).call as ScriptCall), reply)
    return { answer: decode(reply), reply }
  }

  /** Expects that both forms have stored the same bytes. */
  async finish(): Promise<void> {
    const [straight, loops] = await Promise.all(this.#engines.map(bytesOf))
    expectEqual(loops, straight)
  }
}

const REQUEST = new Request('http://gateway.test/')

/** One that runs straight-line code, and one that runs loops. */
type Engines = readonly [straight: RedisEngine, loops: RedisEngine]

/** The values of all keys, without the times at which they expire. */
async function bytesOf(engine: RedisEngine): Promise<[string, unknown][]> {
  const keys = ((await engine.send(['KEYS', '*'])) as Buffer[]).map(String).sort()
  return await Promise.all(
    keys.map(async (key): Promise<[string, unknown]> => [key, await engine.send(['GET', key])]),
  )
}

/** Expects equal values, and shows a readable difference. */
function expectEqual(actual: unknown, expected: unknown): void {
  if (!isDeepStrictEqual(actual, expected)) expect(actual).toEqual(expected)
}

/** The texts of scripts, by rule set. */
const texts = new WeakMap<RuleSet, string>()

/** Whether the script has more locals than a Lua function can have. */
function isSpilled(ruleSet: RuleSet): boolean {
  const text = texts.get(ruleSet) ?? decideText(ruleSet, Number.POSITIVE_INFINITY)
  texts.set(ruleSet, text)
  return text.includes('spilled[')
}

/** Counts what has occurred, so that the test fails if it no longer covers a case. */
class Tally {
  readonly #counts = new Map<string, number>()
  decisions = 0

  count(what: string): void {
    this.#counts.set(what, this.of(what) + 1)
  }

  report(): string {
    return JSON.stringify({ decisions: this.decisions, ...Object.fromEntries([...this.#counts].sort()) })
  }

  of(what: string): number {
    return this.#counts.get(what) ?? 0
  }

  decided(
    { ruleSet, rules, subject, wantedRequests = 1 }: Evaluation,
    verb: 'decide' | 'peek',
    { status, verdicts, granted = 1 }: Outcome,
    first: unknown,
    isShuffled: boolean,
  ): void {
    this.decisions += 1
    this.count(verb)
    this.count(status)
    this.count(subject?.kind ?? 'none')
    this.count(`${subject?.kind ?? 'none'}, ${status}`)
    if (verb === 'decide' && status === 'admitted') {
      this.count(first === 2 ? 'usual end' : 'other end')
      if (isShuffled && first !== 2) this.count('records in another order')
    }
    if (isSpilled(ruleSet)) this.count('spilled locals')
    if (ruleSet.leases && verb === 'decide' && wantedRequests > 1) {
      this.count(`lease wanted, ${status}`)
      const end = first === 2 ? 'usual end' : 'other end'
      if (status === 'admitted') this.count(granted === 1 ? 'lease of one' : `lease, ${end}`)
      if (granted > 1) this.#countLease(rules, verdicts)
    }
    const sizes = Map.groupBy(ruleSet.entries, ({ identity }) => identity)
    if ([...sizes.values()].some(({ length }) => length > 10)) this.count('crowded identity')
    if (rules.some(({ staysShadow }) => staysShadow)) this.count('switched to shadow')
    const bound = new Set(rules.map(({ rule }) => rule))
    const modes = new Map(rules.map(({ rule, mode }) => [rule.name, mode]))
    for (const { rule, mode, delay, retryAfter } of verdicts) {
      if (!bound.has(rule)) this.count('overridden numbers')
      if (modes.get(rule.name) !== mode) this.count('overridden mode')
      if (delay > 0) this.count('delay')
      if (retryAfter === -1) this.count('never')
      if (mode === 'shadow' && retryAfter !== 0) this.count('shadow that would refuse')
      for (const trait of traitsOf(rule)) this.count(trait)
    }
  }

  /** Counts the special rules that take part in a lease. */
  #countLease(rules: readonly BoundRule[], verdicts: readonly Verdict[]): void {
    const costs = new Map(rules.map(({ rule, cost }) => [rule.name, cost]))
    const bound = new Set(rules.map(({ rule }) => rule))
    if (new Set(costs.values()).size > 1) this.count('lease, several costs')
    if (verdicts.some(({ rule }) => rule.on === 'auth-failure')) this.count('lease, guesses')
    for (const { rule, mode, allowed, delay } of verdicts) {
      if (mode === 'shadow') this.count(allowed ? 'lease, shadow' : 'lease, shadow that would refuse')
      if (rule.match.plans) this.count('lease, of plans')
      if (delay > 0) this.count('lease, delay')
      if (!bound.has(rule)) this.count('lease, overridden numbers')
    }
  }
}

const OFTEN = [
  ...ALGORITHM_NAMES,
  ...['admitted', 'refused', 'unknown-credential', 'blocked', 'none', 'key', 'pointer', 'token', 'failed'],
  ...['usual end', 'other end', 'spilled locals', 'crowded identity', 'switched to shadow'],
  'from the first request',
  ...['calendar', 'guesses', 'of plans', 'for other plans', 'long log', 'delay', 'peek'],
  ...['lease, usual end', 'lease, other end', 'lease of one', 'lease, several costs', 'lease, of plans'],
]
const SELDOM = [
  ...[
    'records in another order',
    'overridden numbers',
    'overridden mode',
    'never',
    'shadow that would refuse',
  ],
  ...['refund', 'reset', 'hand over', 'pointer, refused', 'pointer, blocked', 'pointer, unknown-credential'],
  ...['key, refused', 'key, blocked', 'key, unknown-credential', 'token, refused', 'token, blocked'],
  ...['lease wanted, refused', 'lease wanted, blocked', 'lease wanted, unknown-credential'],
  ...['lease, guesses', 'lease, shadow'],
]
/** Expected only with many requests; test/script/lease.test.ts has one of each. */
const RARE = ['lease, shadow that would refuse', 'lease, overridden numbers', 'lease, delay']

describeOnRedisEngine('a compiled rule set', (fresh, kind) => {
  const requests = randomCases(REQUESTS, kind)

  it(`decides ${requests} random requests as the model predicts (SEED=${SEED})`, TIMED, async () => {
    const redis = await fresh()
    const other = await startRedis(kind)
    onTestFinished(() => other.close())
    const engines: Engines = [redis, new RedisEngine(other.connection, undefined, kind)]
    const tally = new Tally()
    let runs = 0
    await forEvery(scenario, Math.ceil(requests / MEAN_VERBS), async ({ config, setUp, steps }) => {
      const ruleSet = checked(config)
      if (!ruleSet) return
      // Otherwise the scripts of thousands of configs would fill the memory of Redis.
      for (const engine of runs++ % 100 === 0 ? engines : []) await engine.send(['SCRIPT', 'FLUSH'])
      const run = new Run(engines, ruleSet, setUp, tally)
      await run.start()
      for (const [i, step] of steps.entries()) {
        try {
          await run.take(step)
        } catch (error) {
          throw new Error(`step ${i}, ${step.verb}`, { cause: error })
        }
      }
      await run.finish()
    })
    if (process.env.PARITY_REPORT) console.log(kind, runs, tally.report())
    if (FC_PATH) return
    expect(tally.decisions).toBeGreaterThan(requests / 3)
    // With fewer requests, the run only has to show that this Redis runs the same scripts.
    if (requests < REQUESTS) return
    for (const what of OFTEN) expect(tally.of(what), what).toBeGreaterThan(requests / 400)
    for (const what of SELDOM) expect(tally.of(what), what).toBeGreaterThan(0)
    for (const what of requests > 10_000 ? RARE : []) expect(tally.of(what), what).toBeGreaterThan(0)
    expectShare('refusals', tally.of('refused'), tally.decisions, 0.05, 0.5)
    expectShare('the usual end', tally.of('usual end'), tally.of('admitted'), 0.15)
  })
})
