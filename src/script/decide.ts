/**
 * The wire format of the script that decides, for the verbs `decide` and `peek`.
 *
 *     KEYS     1. the records of the caller, as far as the subject has them (subject.lua): the record of the consumer, that of the
 *                 credential, the pointer to the consumer. Of limits by name: the overrides of each identity that can have some
 *              2. for each identity of the request its state, followed by the keys of its rules
 *              3. the chunks of logs, then the reservations of identities with rules that are settled later (reservation-wire.ts)
 *     ARGV[1]  verb: 'decide', or 'peek', which has the same reply and spends nothing. With a rule set that has leases, a number above
 *              1: decides, and may spend for up to this many similar requests at once (lease.ts)
 *     ARGV[2]  marks, a letter each. For each identity: 1 if it is part of the request, else 0; then for each of its rules: 0 absent,
 *              e enforced, s shadow, S shadow that no override can enforce
 *     ARGV[3]  the kind of the subject (subject.lua), or ''. Of limits by name: the numbers that the call gives to its rules, in the form of
 *              overrides in the record of a consumer (overrides.lua), or ''
 *     ARGV[4]  the plan if it is known without the store, because a token or an earlier decision names it; for an opaque key the mode that
 *              the rules are bound for; else ''
 *     ARGV[5]  now in microseconds, or '' for the clock of the store
 *     ARGV     for each rule with a calendar the ends of its windows; for each `concurrency` rule the units that the isolate holds;
 *              for each queue of a limit by name the longest wait for its turn that the request accepts (µs), or ''.
 *              If a rule is settled later: the reservationId of the request, or '' (reservation-wire.ts), and what else is to be settled
 *              (settle-along.ts). Then the cost of each rule, unless all costs are 1. A rule with cost 0 admits, and writes nothing. Empty values at
 *              the end are left out
 *
 *     reply    { status, plan, now, the row of each rule, the overrides as text if there are any, and, if ARGV[1] is a number and the
 *                request is admitted, the number of requests that units were spent for; if a pause (pause.lua) refuses it, the end of
 *                the pause (µs) }
 *              status: 1 admitted, 2 admitted and spent by every rule, 0 refused, -1 bad credential, -2 blocked (no rows follow, but the
 *                      end of the block as text in µs, or ''), -3 the key has another mode (no rows follow).
 *                      A positive number or 0 is greater by four for each reservation that was settled (settle-along.ts).
 *                      Rules on bad credentials are checked first, so they can also refuse a blocked consumer, or a key
 *                      of another mode
 *              plan: with a pointer 'plan consumer'. With status -3 the mode is in its place
 *              a row: retry_after (µs; 0: allows, -1: never admits this cost, -2: does not apply to this caller; left out with
 *                     status 2), remaining, reset_after, for a queue the delay until departure, and for a rule that is settled later the
 *                     units that were reserved, and the units above the limit
 *              an override: `1e20,5;` (number of the rule from 1, mark, limit and burst as the operator wrote them)
 *
 * Commands: TIME (unless now is given), one MGET, and for an admitted request one SETEX per identity. In addition: for a log one SETEX,
 * for one with chunks sometimes HGET, HDEL or UNLINK, HSET and EXPIRE; for units in flight one SETEX, or with many isolates one BITFIELD;
 * for a pointer one GET. Reservations that are not in the state take ZADD and PEXPIRE, and if they are given back at their end, ZRANGEBYSCORE and ZREM. A refused request writes nothing. A request with a bad credential spends only under rules on bad credentials.
 */
import { isCallerMode } from '../config/caller-mode.ts'
import { appliesToPlan } from '../config/compile-rule.ts'
import type { ScriptCall } from '../store/store.ts'
import type { BoundRule, Evaluation, Outcome, Subject, Verdict } from './evaluation.ts'
import { withAgreement } from './evaluation.ts'
import { wantedRequestsOf } from './lease.ts'
import { MARKS } from './marks.ts'
import type { RuleSet } from './rule-set-shape.ts'
import {
  checkFields,
  checkStanding,
  formatTime,
  invalidReply,
  isField,
  numbersOfCall,
  overridesKeys,
  placeRules,
} from './wire.ts'

/** `peek` returns what `decide` would return, and spends nothing. */
export type DecideVerb = 'decide' | 'peek'

/** Encodes an evaluation as a call of the script. */
export function encodeDecide(
  { ruleSet, rules, subject, plan, wantedRequests, now }: Evaluation,
  verb: DecideVerb = 'decide',
): ScriptCall & { keys: string[]; args: string[] } {
  const wanted = wantedRequestsOf({ ruleSet, wantedRequests }, verb)
  // Rules for plans apply only if the caller has a plan: from its subject, which the script looks up, or a known one.
  const applies = ({ rule }: BoundRule) => subject !== undefined || appliesToPlan(rule, plan)
  const { byEntry, keys, marks, ruleArguments } = placeRules(ruleSet, rules, applies)
  const verbArgument = wanted > 1 ? String(wanted) : verb
  const args: string[] = [
    verbArgument,
    marks,
    subject?.kind ?? numbersOfCall(rules),
    knownBefore(subject, plan),
    formatTime(now),
    ...ruleArguments,
  ]
  if (rules.some(({ cost }) => cost !== 1))
    args.push(...Array.from(byEntry, bound => String(bound?.cost ?? 1)))
  // Most requests need only the first two or three arguments.
  while (args.at(-1) === '') args.pop()
  return {
    script: ruleSet.decide,
    keys: [...recordKeysOf(subject), ...overridesKeys(ruleSet, rules), ...keys],
    args,
    ...(subject?.kind === 'pointer' && { hasHiddenKeys: true }),
  }
}

/** ARGV[4]. */
function knownBefore(subject: Subject | undefined, plan = ''): string {
  if (subject?.kind === 'token') return subject.plan || plan
  return subject ? ('mode' in subject && subject.mode) || '' : plan
}

/** The keys of the caller's records, in the order of KEYS. */
function recordKeysOf(subject: Subject | undefined): string[] {
  switch (subject?.kind) {
    case 'key':
      return [subject.consumerKey, subject.credentialKey]
    case 'pointer':
      return [subject.consumerKey, subject.credentialKey, subject.pointerKey]
    case 'token':
      return [subject.consumerKey]
    case 'failed':
    case undefined:
      return []
  }
}

const STATUS = new Map<unknown, Outcome['status']>([
  [1, 'admitted'],
  [2, 'admitted'],
  [0, 'refused'],
  [-1, 'unknown-credential'],
  [-2, 'blocked'],
  [-3, 'other-mode'],
])
export const ALL_SPENT = 2
const DOES_NOT_APPLY = -2
/** The rows follow status, plan and time. */
export const ROWS_AT = 3

/**
 * Decodes the reply to an evaluation.
 * @throws GatewayError ERR_STORE_REPLY_INVALID for any reply that the script cannot have sent
 */
export function decodeDecide(
  reply: unknown,
  {
    ruleSet,
    rules,
    subject,
    wantedRequests,
  }: Pick<Evaluation, 'ruleSet' | 'rules' | 'subject' | 'wantedRequests'>,
  verb: DecideVerb = 'decide',
): Outcome {
  if (!Array.isArray(reply)) throw invalidReply('no list')
  const [first, text, at, blockEnd] = reply as unknown[]
  const status = STATUS.get(first)
  if (!status || typeof text !== 'string' || !isField(at) || at < 0)
    throw invalidReply('no status, plan and time')
  if (status === 'blocked') {
    const blockedUntil = Number(blockEnd || Number.NaN)
    return { status, plan: '', at, verdicts: [], ...(Number.isSafeInteger(blockedUntil) && { blockedUntil }) }
  }

  const [plan = '', consumer] = text.split(' ')
  if (status === 'other-mode') {
    if (!isCallerMode(plan)) throw invalidReply('a mode that is neither live nor test')
    return { status, mode: plan, ...(consumer && { consumer }), plan: '', at, verdicts: [] }
  }
  const { rowStarts, length, standingAt } = rowsOf(ruleSet, first === ALL_SPENT)
  const end = ROWS_AT + length
  const wanted = wantedRequestsOf({ ruleSet, wantedRequests }, verb)
  const trailing: unknown[] = reply.slice(end)
  const granted = wanted > 1 && status === 'admitted' ? checkGrant(trailing.pop(), wanted) : 1
  const pausedUntil =
    status === 'refused' && typeof trailing.at(-1) === 'number' ? checkEnd(trailing.pop(), at) : undefined
  if (reply.length < end || trailing.length > 1) {
    throw invalidReply(`${reply.length - ROWS_AT} fields for ${ruleSet.entries.length} rules`)
  }
  const fields = checkFields(reply.slice(ROWS_AT, end))
  const overrides = parseOverrides(trailing[0], ruleSet.entries.length)
  const verdicts: Verdict[] = []
  for (const bound of rules) {
    if (!appliesToPlan(bound.rule, plan)) continue
    const index = ruleSet.entryOf(bound.rule)
    const row = rowStarts[index]!
    const retryAfter = first === ALL_SPENT ? 0 : fields[row]!
    if (retryAfter === DOES_NOT_APPLY) continue
    const remaining = fields[row + standingAt]!
    const resetAfter = fields[row + standingAt + 1]!
    const delay = bound.rule.counting.isQueue ? fields[row + standingAt + 2]! : 0
    checkStanding(remaining, resetAfter, delay)
    const { rule, mode } = applyOverride(bound, overrides?.get(index))
    verdicts.push({ rule, mode, allowed: retryAfter === 0, remaining, resetAfter, retryAfter, delay })
  }
  if (
    pausedUntil === undefined &&
    (status !== 'refused') !== verdicts.every(({ allowed, mode }) => allowed || mode === 'shadow')
  ) {
    throw invalidReply('a status that contradicts its rules')
  }
  // Without a subject, the plan is that of the request. The store has not verified it, so it is left out.
  const known = subject ? plan : ''
  return {
    ...{ status, plan: known, at, verdicts: withAgreement(verdicts) },
    ...(consumer && { consumer }),
    ...(granted > 1 && { granted }),
    ...(pausedUntil !== undefined && { pausedUntil }),
  }
}

function checkEnd(value: unknown, at: number): number {
  if (isField(value) && value > at) return value
  throw invalidReply('a pause that is over')
}

function checkGrant(value: unknown, wanted: number): number {
  if (isField(value) && value >= 1 && value <= wanted) return value
  throw invalidReply('a grant out of range')
}

/** The layout of the rows in a reply. */
interface Rows {
  /** Where the row of each entry begins. */
  rowStarts: readonly number[]
  /** The length of all rows together. */
  length: number
  /** Where `remaining` is in a row: after `retry_after`, if there is one. */
  standingAt: 0 | 1
}

/** The layouts of each rule set, without and with `retry_after`. Computed once. */
const rowsOfRuleSets = new WeakMap<RuleSet, { spent: Rows; any: Rows }>()

export function rowsOf(ruleSet: RuleSet, areAllSpent: boolean): Rows {
  let rows = rowsOfRuleSets.get(ruleSet)
  if (!rows) {
    rows = { spent: layOutRows(ruleSet, 0), any: layOutRows(ruleSet, 1) }
    rowsOfRuleSets.set(ruleSet, rows)
  }
  return areAllSpent ? rows.spent : rows.any
}

function layOutRows({ entries }: RuleSet, standingAt: 0 | 1): Rows {
  const rowStarts: number[] = []
  let length = 0
  for (const { isQueue, settlement } of entries) {
    rowStarts.push(length)
    length += standingAt + (settlement ? 4 : isQueue ? 3 : 2)
  }
  return { rowStarts, length, standingAt }
}

interface AppliedOverride {
  /** As the operator wrote them. 0: the number of the config. */
  limit: number
  burst: number
  mode: Verdict['mode']
}

/** `1e20,5;`: rule 1 is enforced, with a limit of 20 and a burst of 5. */
const OVERRIDE = /(\d{1,4})([es])(\d{0,10}),(\d{0,10});/gy

/** Parses the overrides of a reply, by the index of their entry. @returns undefined if the consumer has none */
function parseOverrides(text: unknown, entryCount: number): Map<number, AppliedOverride> | undefined {
  if (text === undefined) return undefined
  const overrides = new Map<number, AppliedOverride>()
  if (typeof text !== 'string') throw invalidReply('overrides that are not text')
  let read = 0
  for (const [whole, number, mark, limit, burst] of text.matchAll(OVERRIDE)) {
    const index = Number(number) - 1
    if (index < 0 || index >= entryCount || overrides.has(index))
      throw invalidReply('overrides that do not match its rules')
    const mode = mark === MARKS.enforce ? 'enforce' : 'shadow'
    overrides.set(index, { limit: Number(limit), burst: Number(burst), mode })
    read += whole.length
  }
  if (read !== text.length) throw invalidReply('an override that cannot be read')
  return overrides
}

/** The rule with the limit and burst of the override, for headers and messages. */
function applyOverride(
  bound: BoundRule,
  override: AppliedOverride | undefined,
): Pick<Verdict, 'rule' | 'mode'> {
  const { rule } = bound
  // A rule that was bound with the numbers of its call has them already.
  if (!override || rule.ofCall) return bound
  const { limit, burst } = override
  const quota = { ...rule.quota, ...(burst > 0 && { burst }) }
  return { rule: limit > 0 ? { ...rule, limit, quota } : rule, mode: override.mode }
}
