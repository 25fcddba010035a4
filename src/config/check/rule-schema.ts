/**
 * The shape of a rule: what a user writes, and the schema that checks it. Messages are the second half of a sentence
 * that mistake.ts begins with the path and the value.
 */
import * as v from 'valibot'
import { ALGORITHM_NAMES, type AlgorithmName } from '../../algorithms/index.ts'
import { type PlanUnits, planUnits } from '../../algorithms/plan-units.ts'
import { type AlgorithmEntries, algorithmEntries } from './parameter-schema.ts'
import { flag, hostPattern, name, pathPattern, record, settings, units } from './values.ts'

/** The numbers of a rule: docs/algorithms.md says how to choose. */
export type NumbersInput = {
  [Name in AlgorithmName]: v.InferInput<v.StrictObjectSchema<AlgorithmEntries<Name>, undefined>>
}[AlgorithmName]

interface CommonInput {
  /** Names the rule in headers, logs and state. Unique. */
  name: string
  /**
   * `enforce` (default), `shadow` (evaluated with a state of its own, never changes the outcome; its verdict says
   * what it would have done; a candidate is one), or `off` (not evaluated).
   */
  mode?: 'enforce' | 'shadow' | 'off' | undefined
  /**
   * The share of callers for whom the rule is enforced, 0 to 1 (default `1`); for the others it is a shadow. Who is in
   * it hangs on the identity and the rule's name, and who was in it stays in it when the share grows.
   */
  enforce?: number | undefined
  /** A shadow rule that is compared with the rule of this name, which it would replace. Default: none. */
  candidateFor?: string | undefined
  /**
   * What happens to a request while the store does not answer: the isolate counts it by itself (`'local'`, within
   * `store.localShare`), it is refused with a 503 (`'closed'`), or it passes uncounted (`'open'`). Risk of `'open'`: whoever can make
   * the store fail has no limit. Until an outage is confirmed, `'open'` is decided as `'local'`. Default: that of the config.
   */
  onStoreFailure?: OnStoreFailure | undefined
}

export type OnStoreFailure = 'open' | 'closed' | 'local'

/**
 * What of a request is counted apart. A request that has no such header, claim, route, country or network is counted
 * with all others that have none; one without a credential has no consumer, credential or claim, and rules by those
 * do not apply to it. `global` stands alone: everybody together, and on Upstash in one queue.
 */
export type By =
  | 'consumer'
  | 'credential'
  | 'address'
  | 'route'
  | 'method'
  | 'host'
  | 'country'
  | 'asn'
  | 'global'
  | `header:${string}`
  | `claim:${string}`

/** The numbers of a rule for one plan; what is left out is as in the rule. */
export interface PlanNumbersInput {
  /** How many units per period. Default: that of the rule. */
  limit?: number | undefined
  /** Where the algorithm has a burst. Default: that of the rule, or the limit if it has none. */
  burst?: number | undefined
  /** Where the algorithm has a queue. Default: that of the rule, or the limit if it has none. */
  queue?: number | undefined
}

/** A rule of the gateway. */
export type RuleInput = NumbersInput &
  CommonInput & {
    /** Whose requests are counted together: `'consumer'`, `'address'`, or a combination: `['consumer', 'route']`. */
    by: By | By[]
    /**
     * What is counted: each `request` (default), or each `auth-failure`: a credential that the store does not know. When
     * such a rule has nothing left, every credential that comes by the same identity is refused, the good ones too, or
     * guessing would go on.
     */
    on?: 'request' | 'auth-failure' | undefined
    /** Units one request takes (default `1`). 0 reports what is left and takes nothing. */
    cost?: number | undefined
    /** Which requests the rule is for. Everything that is given must hold. Default: every request. */
    match?: MatchInput | undefined
    /** Other numbers for plans, as in `{ pro: { limit: 1200 } }`; `false`: the rule does not apply to that plan. Default: none. */
    plans?: Record<string, PlanNumbersInput | false> | undefined
  }

/** A rule of a limit that is asked by name (`limits`). */
export type LimitRuleInput = NumbersInput &
  CommonInput & {
    /** Parts of the identity that are counted apart, as in `['account']`. Default: everybody together. */
    by?: string[] | undefined
  }

export interface MatchInput {
  /** As in `['POST', 'PUT']`; `'GET'` is for HEAD too. Default: all. */
  methods?: string[] | undefined
  /** A URLPattern for the host name: `'api.example.com'`, `'*.example.com'`. Default: all. */
  host?: string | undefined
  /** A URLPattern for the path: `'/reports/*'`, `'/users/:id'`. Case does not matter. Default: all. */
  path?: string | undefined
  /** Callers with one of these plans, as listed in `plans`. Default: all, and callers without a credential. */
  plans?: string[] | undefined
  /** Requests with one of these routes, by name. Default: all, and requests without a route. */
  routes?: string[] | undefined
  /** `true`: only callers with a credential; `false`: only those without. Default: both. */
  authenticated?: boolean | undefined
}

/** Method, host and path: also of routes. */
export const place = {
  methods: v.optional(
    v.pipe(
      v.array(
        v.pipe(
          v.string('is no method.'),
          v.regex(/^[A-Z]+$/, "is no method. Write it in capitals, as in 'GET'."),
        ),
        "is no list. Write it as in ['GET', 'POST'].",
      ),
      v.minLength(1, 'is empty: it would match nothing. Name a method, or leave it out.'),
    ),
  ),
  host: v.optional(hostPattern),
  path: v.optional(pathPattern),
}

const match = settings(
  {
    ...place,
    plans: v.optional(names('plan', 'pro')),
    routes: v.optional(names('route', 'reports')),
    authenticated: v.optional(flag),
  },
  "is no object. Write it as in { path: '/reports/*' }.",
)

function names(what: string, example: string) {
  return v.pipe(
    v.array(name(`${what} name`), `is no list. Write it as in ['${example}'].`),
    v.minLength(1, `is empty: the rule would match nothing. Name a ${what}, or leave it out.`),
  )
}

const named = { name: name('rule name') }

const modes = {
  mode: v.optional(v.picklist(['enforce', 'shadow', 'off'], "is no mode. Use 'enforce', 'shadow' or 'off'.")),
  enforce: v.optional(share()),
  candidateFor: v.optional(name('rule name')),
  onStoreFailure: v.optional(onStoreFailure()),
}

const BY =
  "is nothing to count by. Use 'consumer', 'credential', 'address', 'route', 'method', 'host', 'header:<name>', 'claim:<name>', 'country', 'asn' or 'global'."

const PLAIN_BY = /^(consumer|credential|address|route|method|host|country|asn|global)$/
/** RFC 9110, section 5.6.2; header names are told in lower case. */
const HEADER_BY = /^header:[!#$%&'*+.^_`|~0-9a-z-]{1,64}$/
const CLAIM_BY = /^claim:.{1,128}$/s

const onePart = v.custom<By>(
  input => typeof input === 'string' && [PLAIN_BY, HEADER_BY, CLAIM_BY].some(form => form.test(input)),
  issue =>
    typeof issue.input === 'string' && issue.input.startsWith('header:')
      ? "names no header. Write it in lower case, as in 'header:x-tenant'."
      : BY,
)

const MAX_PARTS = 6

const by = v.union(
  [
    onePart,
    v.pipe(
      v.array(onePart, BY),
      v.minLength(1, BY),
      v.maxLength(MAX_PARTS, `has more than ${MAX_PARTS} parts. Count by fewer.`),
      v.check(parts => new Set(parts).size === parts.length, 'names a part twice. Leave one out.'),
      v.check(
        parts => parts.length === 1 || !parts.includes('global'),
        "has 'global' beside other parts. Leave it out: whoever is counted apart is not counted together.",
      ),
    ),
  ],
  issue => byMessage(issue.input),
)

/** What is wrong with the first part that is. */
function byMessage(input: unknown): string {
  if (!Array.isArray(input)) return v.safeParse(onePart, input).issues?.[0].message ?? BY
  const wrong = input.find(part => !v.is(onePart, part))
  return wrong === undefined
    ? BY
    : `holds '${String(wrong)}', which ${v.safeParse(onePart, wrong).issues?.[0].message ?? BY}`
}

const unitsOfPlan = (name: PlanUnits) => v.optional(units(planUnits.get(name)!.low))

const numbersOfPlan = {
  limit: unitsOfPlan('limit'),
  burst: unitsOfPlan('burst'),
  queue: unitsOfPlan('queue'),
} satisfies Record<PlanUnits, v.GenericSchema<number | undefined>>

const planNumbers = v.union([v.literal(false), settings(numbersOfPlan, '')], ({ input }) => {
  const other = Object.keys(input ?? {}).find(key => !(key in numbersOfPlan))
  const what = other && typeof input === 'object' ? `has ${other}, and` : 'is neither numbers nor false:'
  return `${what} a plan can have ${PLAN_NUMBERS} of its own. Write it as in { limit: 1200 }.`
})

/** `a limit, a burst (gcra, token-bucket) and a queue (leaky-bucket)` */
const PLAN_NUMBERS = listed(
  [...planUnits].map(([name, { algorithms }]) =>
    algorithms.length === ALGORITHM_NAMES.length ? `a ${name}` : `a ${name} (${algorithms.join(', ')})`,
  ),
  'and',
)

const gatewayOnly = {
  by,
  on: v.optional(
    v.picklist(['request', 'auth-failure'], "is nothing to count. Use 'request' or 'auth-failure'."),
  ),
  cost: v.optional(units(0)),
  match: v.optional(match),
  plans: v.optional(
    record(name('plan name'), planNumbers, 'is no object. Write it as in { pro: { limit: 1200 } }.'),
  ),
}

const limitOnly = {
  by: v.optional(
    v.pipe(
      v.array(name('part of an identity'), "is no list. Write it as in ['account']."),
      v.minLength(1, 'is empty. Name a part of the identity, or leave it out to count everybody together.'),
      v.check(parts => new Set(parts).size === parts.length, 'names a part twice. Leave one out.'),
    ),
  ),
}

const RULE =
  "is no rule. Write { name: 'second', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1s' }."
const LIMIT_RULE = "is no rule. Write { name: 'second', algorithm: 'gcra', limit: 10, period: '1s' }."

type RuleEntries<Own, Name extends AlgorithmName> = typeof named & Own & AlgorithmEntries<Name> & typeof modes

/** One variant for each algorithm. */
type RuleVariant<Own> = {
  [Name in AlgorithmName]: v.StrictObjectSchema<RuleEntries<Own, Name>, v.ErrorMessage<v.StrictObjectIssue>>
}[AlgorithmName]

function ruleOf<const Own extends v.ObjectEntries>(own: Own, fix: string) {
  const variants = ALGORITHM_NAMES.map(algorithm =>
    settings({ ...named, ...own, ...algorithmEntries(algorithm), ...modes }, fix),
  )
  return v.variant('algorithm', variants as unknown as RuleVariant<Own>[], issue =>
    issue.expected === 'Object' ? fix : `is no algorithm. Use ${ALGORITHMS}.`,
  )
}

const ALGORITHMS = listed(
  ALGORITHM_NAMES.map(algorithm => `'${algorithm}'`),
  'or',
)

export const rule = ruleOf(gatewayOnly, RULE)
export const limitRule = ruleOf(limitOnly, LIMIT_RULE)

export function onStoreFailure() {
  return v.picklist(['open', 'closed', 'local'], "is not known here. Use 'open', 'closed' or 'local'.")
}

/** From 0 to 1. */
function share() {
  const fix = 'is no share. Write a number from 0 to 1.'
  return v.pipe(v.number(fix), v.minValue(0, fix), v.maxValue(1, fix))
}

function listed(items: readonly string[], conjunction: 'and' | 'or'): string {
  return `${items.slice(0, -1).join(', ')} ${conjunction} ${items.at(-1)}`
}
