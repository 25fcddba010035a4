/**
 * From what the user wrote to what a request meets: checked, defaults filled in, numbers in microseconds, and
 * everything that can be worked out once worked out. Pure; the result is never changed.
 */
import * as v from 'valibot'
import {
  compileGatewayRule,
  compileLimitRule,
  type GatewayRule,
  type LimitRule,
  longestDelay,
  MAX_HOLD,
  mistakesOfNumbers,
  type Rule,
} from './compile-rule.ts'
import { ConfigError, type Mistake, mistakeOf } from './config-error.ts'
import { parseDuration } from './duration.ts'
import type { LimitRuleInput, RuleInput } from './rule-schema.ts'
import { type ConfigInput, type CorsInput, configSchema } from './schema.ts'

export type { GatewayRule, LimitRule, Rule }

export interface Config {
  origin: string
  originDeadlineMs: number
  /** The first is the default. */
  plans: readonly string[]
  /** Without those that are off. */
  rules: readonly GatewayRule[]
  /** Rule sets that are asked by name, with those of their rules that are off. */
  limits: ReadonlyMap<string, readonly LimitRule[]>
  forwardCredential: boolean
  storeDeadlineMs: number
  keyLocking: boolean
  /** Keys of several slots cannot go into one call. */
  cluster: boolean
  cors?: { origins: '*' | readonly string[]; headers?: readonly string[]; maxAgeSeconds: number }
}

/**
 * Types the config of sluice.config.ts, and nothing else: it is checked by compileConfig when the Worker
 * starts, when it is deployed, and by `npx sluice check`.
 */
export function defineConfig(input: ConfigInput): ConfigInput {
  return input
}

/** @throws ConfigError naming every mistake: path, value, fix. */
export function compileConfig(input: unknown): Config {
  const parsed = v.safeParse(configSchema, input)
  if (!parsed.success) throw new ConfigError(withoutRepeats(parsed.issues.map(mistakeOf)))
  const config: ConfigInput = parsed.output

  const plans = config.plans ?? ['free']
  const rules = config.rules.map(compileGatewayRule)
  const limits = Object.entries(config.limits ?? {}).map(
    ([name, set]) => [name, set, set.map(compileLimitRule)] as const,
  )
  const mistakes = [
    ...mistakesOfSet(config.rules, rules, 'rules'),
    ...config.rules.flatMap((rule, i) => mistakesAtGateway(rule, rules[i]!, `rules[${i}]`, config)),
    ...limits.flatMap(([name, set, compiled]) => mistakesOfSet(set, compiled, `limits.${name}`)),
    ...limits.flatMap(([name, set]) =>
      set.flatMap((rule, i) => mistakesByName(rule, `limits.${name}[${i}]`)),
    ),
  ]
  if (mistakes.length > 0) throw new ConfigError(mistakes)

  return {
    origin: config.origin,
    originDeadlineMs: milliseconds(config.originDeadline ?? '30s'),
    plans,
    rules: rules.filter(({ mode }) => mode !== 'off'),
    limits: new Map(limits.map(([name, _, compiled]) => [name, compiled])),
    forwardCredential: config.credentials?.forward ?? false,
    storeDeadlineMs: milliseconds(config.store?.deadline ?? '250ms'),
    keyLocking: config.store?.keyLocking ?? true,
    cluster: config.store?.cluster ?? false,
    ...(config.cors && { cors: compileCors(config.cors) }),
  }
}

/** An amount can be wrong in two ways, which are told in one sentence. */
function withoutRepeats(mistakes: readonly Mistake[]): Mistake[] {
  const texts = mistakes.map(({ path, message }) => `${path} ${message}`)
  return mistakes.filter((_, i) => texts.indexOf(texts[i]!) === i)
}

function compileCors({ origins, headers, maxAge }: CorsInput): NonNullable<Config['cors']> {
  return { origins, ...(headers && { headers }), maxAgeSeconds: milliseconds(maxAge ?? '10m') / 1e3 }
}

/** What the schema cannot see in rules that are decided together: how they fit each other. */
function mistakesOfSet(
  set: readonly (RuleInput | LimitRuleInput)[],
  compiled: readonly Rule[],
  path: string,
): Mistake[] {
  return set.flatMap((rule, i) => {
    const mistakes: Mistake[] = []
    const report = (key: string, message: string) => mistakes.push({ path: `${path}[${i}].${key}`, message })
    for (const [key, message] of mistakesOfNumbers(rule)) report(key, message)

    const twin = set.findIndex(other => other.name === rule.name)
    if (twin < i) {
      report('name', `'${rule.name}' is taken by ${path}[${twin}]. Give each rule a name of its own.`)
    } else if (compiled.findIndex(other => other.tag === compiled[i]!.tag) < i) {
      report('name', `'${rule.name}' hashes to the same tag as an earlier rule. Choose another name.`)
    }

    const { candidateFor, mode, enforce } = rule
    if (enforce !== undefined && (mode === 'shadow' || candidateFor !== undefined)) {
      report('enforce', `${enforce} means nothing for a shadow. Leave it out, or enforce the rule.`)
    }
    if (candidateFor !== undefined) {
      const replaced = set.find(other => other.name === candidateFor)
      if (mode === 'enforce') {
        report(
          'mode',
          `'enforce' cannot go with candidateFor: a candidate is a shadow. Leave one of them out.`,
        )
      }
      if (!replaced || replaced === rule || replaced.candidateFor !== undefined || replaced.mode === 'off') {
        report(
          'candidateFor',
          `'${candidateFor}' is no other live rule of ${path}. Name the rule to replace.`,
        )
      }
    }
    return mistakes
  })
}

/** What the schema cannot see in one rule of the gateway. */
function mistakesAtGateway(
  rule: RuleInput,
  compiled: GatewayRule,
  path: string,
  config: ConfigInput,
): Mistake[] {
  const mistakes: Mistake[] = []
  const report = (key: string, message: string) => mistakes.push({ path: `${path}.${key}`, message })
  const { cost, burst } = compiled.quota
  if (cost > burst) {
    report('cost', `${cost} can never be admitted: it is above the ${mostOf(rule)} of ${burst}. Lower it.`)
  }
  const delay = longestDelay(compiled)
  if (delay > MAX_HOLD) {
    const most = Math.floor((MAX_HOLD * compiled.limit) / compiled.period)
    report(
      'queue',
      `${burst - 1} could hold a request for ${Math.ceil(delay / 1e6)} s. At this rate ${most} can wait for 60 s.`,
    )
  }
  if (rule.anonymous && rule.by !== 'address') {
    report('anonymous', `true needs by: 'address': a caller without a credential has no consumer.`)
  }
  if (rule.anonymous && rule.match?.plans) {
    report('anonymous', 'true cannot go with match.plans: a caller without a credential has no plan.')
  }
  if (config.store?.cluster && rule.by === 'address' && rule.match?.plans) {
    report(
      'match.plans',
      `needs by: 'consumer' on a cluster: the slot of an address does not know whose plan it is.`,
    )
  }
  for (const plan of rule.match?.plans ?? []) {
    const plans = config.plans ?? ['free']
    if (plans.includes(plan)) continue
    report('match.plans', `'${plan}' is not in plans (${plans.join(', ')}). Add it there.`)
  }
  return mistakes
}

/** What the schema cannot see in one rule of a limit by name. */
function mistakesByName({ by, enforce }: LimitRuleInput, path: string): Mistake[] {
  if (by !== undefined || enforce === undefined || enforce === 0 || enforce === 1) return []
  const message = `${enforce} is a share of callers, and this rule counts everybody together. Leave it out, or give it a by.`
  return [{ path: `${path}.enforce`, message }]
}

/** What bounds the cost of one request. */
function mostOf({ algorithm }: RuleInput): string {
  switch (algorithm) {
    case 'gcra':
    case 'token-bucket':
      return 'burst'
    case 'leaky-bucket':
      return 'queue and the one that departs,'
    default:
      return 'limit'
  }
}

const milliseconds = (text: string) => parseDuration(text)! / 1e3
