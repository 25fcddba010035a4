/** The wire of decide.lua: verbs `decide` and `peek`. The contract is described there. */
import type { ScriptCall } from '../store/store.ts'
import type { BoundRule, Evaluation, Outcome, Subject, Verdict } from './evaluation.ts'
import { withAgreement } from './evaluation.ts'
import { DECIDE } from './scripts.generated.ts'
import { checkStanding, familyOf, invalid, isField, keysOf, placeOf, rowsOf, textOf } from './wire.ts'

/** `peek` returns what `decide` would, and spends nothing. */
export type DecideVerb = 'decide' | 'peek'

/** KEYS and ARGV for decide.lua, and whether it touches keys that only it can name. */
export function encodeDecide(
  { rules, subject, plans, now }: Evaluation,
  verb: DecideVerb = 'decide',
): ScriptCall & { keys: string[]; args: string[] } {
  const places = keysOf(recordsOf(subject), rules)
  const { keys, whole } = places
  const args = [verb, textOf(now), subject ? spaced(plans) : '', String(whole), subject?.kind ?? '']
  args.push((subject?.kind === 'token' && subject.plan) || '')
  args.push(subject && 'consumerKey' in subject ? rules.map(familyOf).join('') : '')
  for (const bound of rules) {
    const { plans } = bound.rule.match
    args.push(
      ...placeOf(bound, places),
      roleOf(bound),
      String(bound.cost),
      plans ? spaced(plans) : '',
      modeOf(bound),
    )
  }
  return { script: DECIDE, keys, args, ...(subject?.kind === 'pointer' && { hasHiddenKeys: true }) }
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

function roleOf({ rule, role }: BoundRule): string {
  return rule.on === 'auth-failure' ? 'guess' : role
}

function modeOf({ mode, staysShadow }: BoundRule): string {
  if (mode === 'enforce') return '1'
  return staysShadow ? '2' : '0'
}

/** ` free pro `: each plan with a space around it, so that one plain search finds a whole name. */
function spaced(plans: readonly string[]): string {
  return ` ${plans.join(' ')} `
}

const STATUS = new Map<unknown, Outcome['status']>([
  [1, 'admitted'],
  [0, 'refused'],
  [-1, 'unknown-credential'],
  [-2, 'blocked'],
])
const DOES_NOT_APPLY = -2

/** @throws GatewayError ERR_STORE_REPLY_INVALID for any reply that decide.lua cannot have sent */
export function decodeDecide(reply: unknown, { rules }: Pick<Evaluation, 'rules'>): Outcome {
  if (!Array.isArray(reply)) throw invalid('no list')
  const [first, text, at, ...fields] = reply as unknown[]
  const status = STATUS.get(first)
  if (!status || typeof text !== 'string' || !isField(at) || at < 0) throw invalid('no status, plan and time')
  if (status === 'blocked') return { status, plan: '', at, verdicts: [] }

  const [plan = '', consumer] = text.split(' ')
  const rows = rowsOf(fields)
  if (rows.length < rules.length) throw invalid(`${rows.length} rows for ${rules.length} rules`)
  const overrides = overridesIn(rows.splice(rules.length), rules.length)
  const verdicts = rules.flatMap((bound, i): Verdict[] => {
    const [retryAfter, remaining, resetAfter, delay] = rows[i]!
    if (retryAfter === DOES_NOT_APPLY) return []
    checkStanding(rows[i]!)
    const allowed = retryAfter === 0
    return [{ ...overridden(bound, overrides.get(i)), allowed, remaining, resetAfter, retryAfter, delay }]
  })
  if ((status !== 'refused') !== verdicts.every(({ allowed, mode }) => allowed || mode === 'shadow')) {
    throw invalid('a status against its rules')
  }
  return { status, plan, at, verdicts: withAgreement(verdicts), ...(consumer && { consumer }) }
}

interface AppliedOverride {
  limit: number
  burst: number
  mode: Verdict['mode']
}

/** Overrides by the place of their rule. */
function overridesIn(rows: readonly (readonly number[])[], rules: number): Map<number, AppliedOverride> {
  const overrides = new Map(
    rows.map(([number, limit, burst, mode]) => [
      number! - 1,
      { limit: limit!, burst: burst!, mode: mode === 1 ? 'enforce' : 'shadow' } as const,
    ]),
  )
  if (overrides.size !== rows.length || [...overrides.keys()].some(i => i < 0 || i >= rules)) {
    throw invalid('an override of no rule')
  }
  return overrides
}

/** The rule with the numbers that the consumer has, as headers and messages show them. */
function overridden(
  { rule, mode }: BoundRule,
  override: AppliedOverride | undefined,
): Pick<Verdict, 'rule' | 'mode'> {
  if (!override) return { rule, mode }
  const { limit, burst } = override
  const quota = { ...rule.quota, ...(burst > 0 && { burst }) }
  return { rule: limit > 0 ? { ...rule, limit, quota } : rule, mode: override.mode }
}
