/**
 * From what the user wrote to what a request meets: checked, defaults filled in, numbers in microseconds, and
 * everything that can be worked out once worked out. Pure; the result is never changed.
 */
import * as v from 'valibot'
import type { Quota } from '../algorithms/algorithm.ts'
import type { AlgorithmName } from '../algorithms/index.ts'
import { ConfigError, type Mistake, mistakeOf } from './config-error.ts'
import { parseDuration } from './duration.ts'
import {
  type ConfigInput,
  type CorsInput,
  configSchema,
  MAX_TICKS,
  type MatchInput,
  type RuleInput,
} from './schema.ts'

export interface Rule {
  name: string
  by: 'consumer' | 'address'
  algorithm: AlgorithmName
  /** As written: units per period, for headers and messages. */
  limit: number
  /** As written, in microseconds. */
  period: number
  /** The numbers the algorithm works with. */
  quota: Quota
  /** Names the rule's record in the state of an identity: three base62 letters. */
  tag: string
  match: Match
  /** Lets callers without a credential in, where it matches. */
  anonymous: boolean
}

export interface Match {
  /** Undefined: any. */
  methods?: ReadonlySet<string>
  url?: URLPattern
  plans?: readonly string[]
}

export interface Config {
  origin: string
  originDeadlineMs: number
  /** The first is the default. */
  plans: readonly string[]
  rules: readonly Rule[]
  forwardCredential: boolean
  storeDeadlineMs: number
  keyLocking: boolean
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
  if (!parsed.success) throw new ConfigError(parsed.issues.map(mistakeOf))
  const config: ConfigInput = parsed.output

  const plans = config.plans ?? ['free']
  const rules = config.rules.map(compileRule)
  const mistakes = config.rules.flatMap((rule, i) => mistakesOf(rule, i, config, rules))
  if (mistakes.length > 0) throw new ConfigError(mistakes)

  return {
    origin: config.origin,
    originDeadlineMs: milliseconds(config.originDeadline ?? '30s'),
    plans,
    rules,
    forwardCredential: config.credentials?.forward ?? false,
    storeDeadlineMs: milliseconds(config.store?.deadline ?? '250ms'),
    keyLocking: config.store?.keyLocking ?? true,
    ...(config.cors && { cors: compileCors(config.cors) }),
  }
}

function compileRule(rule: RuleInput): Rule {
  const period = parseDuration(rule.period)!
  const { limit, cost = 1, anonymous = false } = rule
  const burst = rule.algorithm === 'gcra' ? (rule.burst ?? limit) : limit
  // Only the ratio counts for gcra, and in lowest terms it needs the fewest ticks.
  const divisor = rule.algorithm === 'gcra' ? greatestCommonDivisor(limit, period) : 1
  return {
    name: rule.name,
    by: rule.by,
    algorithm: rule.algorithm,
    limit,
    period,
    quota: { limit: limit / divisor, period: period / divisor, burst, cost },
    tag: tagOf([rule.name, rule.algorithm, period, ...(rule.algorithm === 'gcra' ? [limit, burst] : [])]),
    match: compileMatch(rule.match ?? {}),
    anonymous,
  }
}

function compileMatch({ methods, host, path, plans }: MatchInput): Match {
  return {
    ...(methods && { methods: new Set(methods) }),
    ...((host || path) && {
      // Many origins take /Login for /login: a limit must not hang on the case.
      url: new URLPattern(
        { ...(host && { hostname: host }), ...(path && { pathname: path }) },
        { ignoreCase: true },
      ),
    }),
    ...(plans && { plans }),
  }
}

function compileCors({ origins, headers, maxAge }: CorsInput): NonNullable<Config['cors']> {
  return { origins, ...(headers && { headers }), maxAgeSeconds: milliseconds(maxAge ?? '10m') / 1e3 }
}

/** What the schema cannot see: how the parts fit together. */
function mistakesOf(rule: RuleInput, i: number, config: ConfigInput, compiled: readonly Rule[]): Mistake[] {
  const mistakes: Mistake[] = []
  const report = (key: string, message: string) => mistakes.push({ path: `rules[${i}].${key}`, message })
  const { quota, tag } = compiled[i]!

  const twin = config.rules.findIndex(other => other.name === rule.name)
  if (twin < i) {
    report('name', `'${rule.name}' is taken by rules[${twin}]. Give each rule a name of its own.`)
  } else if (compiled.findIndex(other => other.tag === tag) < i) {
    report('name', `'${rule.name}' hashes to the same tag as an earlier rule. Choose another name.`)
  }

  const most = rule.algorithm === 'gcra' ? 'burst' : 'limit'
  if (quota.cost > quota.burst) {
    report(
      'cost',
      `${quota.cost} can never be admitted: it is above the ${most} of ${quota.burst}. Lower it.`,
    )
  }
  if (rule.algorithm === 'gcra' && quota.burst * quota.period > MAX_TICKS) {
    report(
      'limit',
      `${rule.limit} per '${rule.period}' with a burst of ${quota.burst} needs more than 2^51 steps to space ` +
        `exactly. Lower the burst, or choose a limit that divides the period in microseconds (${period(rule)}).`,
    )
  }
  if (rule.anonymous && rule.by !== 'address') {
    report('anonymous', `true needs by: 'address': a caller without a credential has no consumer.`)
  }
  if (rule.anonymous && rule.match?.plans) {
    report('anonymous', 'true cannot go with match.plans: a caller without a credential has no plan.')
  }
  for (const plan of rule.match?.plans ?? []) {
    const plans = config.plans ?? ['free']
    if (plans.includes(plan)) continue
    report('match.plans', `'${plan}' is not in plans (${plans.join(', ')}). Add it there.`)
  }
  return mistakes
}

const period = (rule: RuleInput) => parseDuration(rule.period)!

const milliseconds = (text: string) => parseDuration(text)! / 1e3

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b)
}

const BASE62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

/**
 * State belongs to a rule's name, algorithm and period, and under gcra, which keeps a time and no count, also to its
 * limit and burst: with other numbers it would mean something else, so the rule starts afresh. Two configs that are
 * live at once (a gradual deployment) so never read each other's. The limit of a fixed window may change under its
 * count. (FNV-1a, cut to three letters: a name for a record, not a secret; two rules of one config with the same tag
 * are refused.)
 */
function tagOf(parts: readonly (string | number)[]): string {
  let hash = 0x811c9dc5
  for (const character of parts.join(' ')) {
    hash = Math.imul(hash ^ character.charCodeAt(0), 0x01000193) >>> 0
  }
  return Array.from({ length: 3 }, (_, i) => BASE62[Math.floor(hash / 62 ** i) % 62]).join('')
}
