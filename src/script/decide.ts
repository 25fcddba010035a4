/**
 * The wire of the script that decides, for the verbs `decide` and `peek`.
 *
 *     KEYS     for a caller with a credential the record of the consumer, then that of the credential, then the pointer that leads
 *              to the consumer, as far as the subject has them (subject.lua); then, for each identity that is asked about, its
 *              state and the keys of its rules; long logs come last
 *     ARGV[1]  verb: 'decide'; 'peek', which says the same and spends nothing; or, with a policy that has leases, a number above 1:
 *              it decides, and may spend for so many requests like this one at once (lease.ts)
 *     ARGV[2]  marks, a letter each: for each identity 1 where it is asked about, else 0, and then for each of its rules 0 where
 *              it is not asked about, e enforced, s shadow, S shadow whatever an override says
 *     ARGV[3]  the subject (subject.lua), or ''
 *     ARGV[4]  the plan, where it is known without the store: a token names it, or an earlier decision has found it; else ''
 *     ARGV[5]  now in microseconds, or '' for the clock of the store
 *     ARGV     of each rule with a calendar the ends of its windows, of each that counts what is in flight what the isolate holds; then, only where one of them is not 1, what each rule costs; a
 *              rule that costs 0 admits, and writes nothing. Empty values at the end are left out
 *
 *     reply    { status, plan, now, then the row of each rule, then text if rules have overrides, then for how many requests was
 *                spent if a number was asked for and the request is admitted }
 *              status: 1 admitted, 2 admitted and spent by every rule, 0 refused, -1 bad credential, -2 blocked (nothing follows;
 *                      rules that count guesses can refuse first)
 *              plan: after a pointer 'plan consumer'
 *              a row: retry_after (µs; 0: it allows, -1: it never will, -2: it does not apply to this caller; left out with
 *                     status 2), remaining, reset_after, and of a queue the delay until departure
 *              an override: `1e20,5;` (which rule, from 1; its mark; limit and burst as written)
 *
 * Commands: TIME (unless now is given), one MGET, and when admitted one SETEX an identity; a log takes one SETEX, or SETRANGE and
 * EXPIRE, and a long one two or more GETRANGE; what is in flight one SETEX, or with more than 64 isolates two SETRANGE and at
 * times EXPIRE; a pointer one GET. A refused request writes nothing; one with a bad credential
 * spends the rules that count guesses and no others.
 */
import type { ScriptCall } from '../store/store.ts'
import type { BoundRule, Evaluation, Outcome, Subject, Verdict } from './evaluation.ts'
import { withAgreement } from './evaluation.ts'
import { wantedRequestsOf } from './lease.ts'
import { MARKS } from './marks.ts'
import type { Policy } from './policy-shape.ts'
import { checkFields, checkStanding, formatTime, invalidReply, isField, placeRules } from './wire.ts'

/** `peek` returns what `decide` would, and spends nothing. */
export type DecideVerb = 'decide' | 'peek'

/** KEYS and ARGV, and whether the script touches keys that only it can name. */
export function encodeDecide(
  { policy, rules, subject, plan, wantedRequests, now }: Evaluation,
  verb: DecideVerb = 'decide',
): ScriptCall & { keys: string[]; args: string[] } {
  const wanted = wantedRequestsOf({ policy, wantedRequests }, verb)
  // The plan of a caller is known where its subject is, and rules of plans count nowhere else.
  const applies = ({ rule: { match } }: BoundRule) =>
    subject !== undefined || match.plans === undefined || (plan !== undefined && match.plans.includes(plan))
  const { bySlot, keys, marks, ruleArguments } = placeRules(policy, rules, applies)
  const claimed = (subject?.kind === 'token' && subject.plan) || (plan ?? '')
  const asked = wanted > 1 ? String(wanted) : verb
  const args: string[] = [asked, marks, subject?.kind ?? '', claimed, formatTime(now), ...ruleArguments]
  if (rules.some(({ cost }) => cost !== 1))
    args.push(...Array.from(bySlot, bound => String(bound?.cost ?? 1)))
  // Most requests need the first two or three.
  while (args.at(-1) === '') args.pop()
  return {
    script: policy.decide,
    keys: [...recordsOf(subject), ...keys],
    args,
    ...(subject?.kind === 'pointer' && { hasHiddenKeys: true }),
  }
}

/** In the order in which the script looks for them. */
function recordsOf(subject: Subject | undefined): string[] {
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
])
const ALL_SPENT = 2
const DOES_NOT_APPLY = -2
/** Behind status, plan and time. */
const ROWS_AT = 3

/** @throws GatewayError ERR_STORE_REPLY_INVALID for any reply that the script cannot have sent */
export function decodeDecide(
  reply: unknown,
  {
    policy,
    rules,
    subject,
    wantedRequests,
  }: Pick<Evaluation, 'policy' | 'rules' | 'subject' | 'wantedRequests'>,
  verb: DecideVerb = 'decide',
): Outcome {
  if (!Array.isArray(reply)) throw invalidReply('no list')
  const [first, text, at] = reply as unknown[]
  const status = STATUS.get(first)
  if (!status || typeof text !== 'string' || !isField(at) || at < 0)
    throw invalidReply('no status, plan and time')
  if (status === 'blocked') return { status, plan: '', at, verdicts: [] }

  const [plan = '', consumer] = text.split(' ')
  const { places, length, standingAt } = rowsOf(policy, first === ALL_SPENT)
  const end = ROWS_AT + length
  const wanted = wantedRequestsOf({ policy, wantedRequests }, verb)
  const behind: unknown[] = reply.slice(end)
  const granted = wanted > 1 && status === 'admitted' ? grantIn(behind.pop(), wanted) : 1
  if (reply.length < end || behind.length > 1) {
    throw invalidReply(`${reply.length - ROWS_AT} fields for ${policy.slots.length} rules`)
  }
  const fields = checkFields(reply.slice(ROWS_AT, end))
  const overrides = overridesIn(behind[0], policy.slots.length)
  const verdicts: Verdict[] = []
  for (const bound of rules) {
    const { plans } = bound.rule.match
    if (plans && !plans.includes(plan)) continue
    const slot = policy.slotOf(bound.rule)
    const row = places[slot]!
    const retryAfter = first === ALL_SPENT ? 0 : fields[row]!
    if (retryAfter === DOES_NOT_APPLY) continue
    const remaining = fields[row + standingAt]!
    const resetAfter = fields[row + standingAt + 1]!
    const delay = bound.rule.counting.isQueue ? fields[row + standingAt + 2]! : 0
    checkStanding(remaining, resetAfter, delay)
    const { rule, mode } = overridden(bound, overrides?.get(slot))
    verdicts.push({ rule, mode, allowed: retryAfter === 0, remaining, resetAfter, retryAfter, delay })
  }
  if ((status !== 'refused') !== verdicts.every(({ allowed, mode }) => allowed || mode === 'shadow')) {
    throw invalidReply('a status that contradicts its rules')
  }
  // Only a caller without a subject has a plan that was not looked up.
  const known = subject ? plan : ''
  return {
    ...{ status, plan: known, at, verdicts: withAgreement(verdicts) },
    ...(consumer && { consumer }),
    ...(granted > 1 && { granted }),
  }
}

function grantIn(value: unknown, wanted: number): number {
  if (isField(value) && value >= 1 && value <= wanted) return value
  throw invalidReply('a grant out of range')
}

/** Where the row of each slot begins, and how long all of them are. */
interface Rows {
  places: readonly number[]
  length: number
  /** The place of `remaining` in a row. */
  standingAt: 0 | 1
}

/** Plain data, made once for a policy: with and without `retry_after`. */
const rowsOfPolicies = new WeakMap<Policy, { spent: Rows; any: Rows }>()

function rowsOf(policy: Policy, areAllSpent: boolean): Rows {
  let rows = rowsOfPolicies.get(policy)
  if (!rows) {
    rows = { spent: rowsFrom(policy, 0), any: rowsFrom(policy, 1) }
    rowsOfPolicies.set(policy, rows)
  }
  return areAllSpent ? rows.spent : rows.any
}

function rowsFrom({ slots }: Policy, standingAt: 0 | 1): Rows {
  const places: number[] = []
  let length = 0
  for (const { isQueue } of slots) {
    places.push(length)
    length += standingAt + (isQueue ? 3 : 2)
  }
  return { places, length, standingAt }
}

interface AppliedOverride {
  /** As an operator wrote them; 0: as in the config. */
  limit: number
  burst: number
  mode: Verdict['mode']
}

/** `1e20,5;`: rule 1 is enforced, with a limit of 20 and a burst of 5. */
const OVERRIDE = /(\d{1,4})([es])(\d{0,10}),(\d{0,10});/gy

/** Overrides by the slot of their rule; undefined where the consumer has no override. */
function overridesIn(text: unknown, slots: number): Map<number, AppliedOverride> | undefined {
  if (text === undefined) return undefined
  const overrides = new Map<number, AppliedOverride>()
  if (typeof text !== 'string') throw invalidReply('overrides that are not text')
  let read = 0
  for (const [whole, number, mark, limit, burst] of text.matchAll(OVERRIDE)) {
    const slot = Number(number) - 1
    if (slot < 0 || slot >= slots || overrides.has(slot)) throw invalidReply('an override of no rule')
    const mode = mark === MARKS.enforce ? 'enforce' : 'shadow'
    overrides.set(slot, { limit: Number(limit), burst: Number(burst), mode })
    read += whole.length
  }
  if (read !== text.length) throw invalidReply('an override that cannot be read')
  return overrides
}

/** The rule with the numbers that the consumer has, as headers and messages show them. */
function overridden(bound: BoundRule, override: AppliedOverride | undefined): Pick<Verdict, 'rule' | 'mode'> {
  if (!override) return bound
  const { rule } = bound
  const { limit, burst } = override
  const quota = { ...rule.quota, ...(burst > 0 && { burst }) }
  return { rule: limit > 0 ? { ...rule, limit, quota } : rule, mode: override.mode }
}
