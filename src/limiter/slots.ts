/**
 * One decision over several slots of a Redis Cluster, where no script can see them all. Each slot decides for its own
 * keys, all or nothing, in one HTTP request; when one of them refuses, what the others have spent is given back with a
 * second. A limit is never exceeded: between the two, others may be refused who would have been admitted, and what has
 * come back by itself meanwhile (gcra, token-bucket) or stands in a queue (leaky-bucket) is not given back.
 */
import { GatewayError } from '../errors.ts'
import type { Store } from '../store/store.ts'
import { ask, type Evaluation, type Outcome, type Verdict, withAgreement } from './wire.ts'

/** The hash tag, which decides a key's slot: what stands in the first braces. */
function hashTagOf(key: string): string {
  return /\{(.+?)\}/.exec(key)?.[1] ?? key
}

/** One evaluation a slot. The credential goes with its own; the others know no plan. */
export function splitBySlot(evaluation: Evaluation): Evaluation[] {
  const { rules, credentialKey, ...rest } = evaluation
  const bySlot = Map.groupBy(rules, ({ key }) => hashTagOf(key))
  const home = credentialKey && hashTagOf(credentialKey)
  if (home && !bySlot.has(home)) bySlot.set(home, [])
  return [...bySlot].map(([slot, rules]) => ({
    ...rest,
    rules,
    ...(slot === home && { credentialKey }),
  }))
}

/**
 * What the slots said, as one outcome; gives back what was spent when not all of them admit.
 * @throws GatewayError of a slot that has not answered, where no other refuses
 */
export async function joinSlots(
  store: Store,
  { rules }: Evaluation,
  parts: readonly Evaluation[],
  answers: readonly (Outcome | GatewayError)[],
): Promise<Outcome> {
  const outcomes = answers.filter(isOutcome)
  const failure = answers.find(answer => answer instanceof GatewayError)
  const status =
    (['unknown-credential', 'refused'] as const).find(bad => outcomes.some(({ status }) => status === bad)) ??
    'admitted'
  if (failure && status === 'admitted') throw failure
  const at = Math.max(...outcomes.map(outcome => outcome.at))
  const plan = outcomes.map(outcome => outcome.plan).find(Boolean) ?? ''
  let verdicts = outcomes.flatMap(outcome => outcome.verdicts)

  if (status !== 'admitted') {
    const given = await giveBack(store, parts, answers)
    const corrected = new Map(given.flatMap(({ verdicts }) => verdicts).map(each => [each.rule.tag, each]))
    verdicts = verdicts.map(verdict => withoutSpending(verdict, corrected.get(verdict.rule.tag)))
  }
  if (status === 'unknown-credential') return { status, plan: '', at, verdicts: [] }

  const byTag = new Map(verdicts.map(verdict => [verdict.rule.tag, verdict]))
  const inOrder = rules.flatMap(({ rule }) => byTag.get(rule.tag) ?? [])
  return { status, plan, at, verdicts: withAgreement(inOrder) }
}

/** @returns how things stand then; of a slot that cannot be reached nothing, and what it has spent stays spent */
async function giveBack(
  store: Store,
  parts: readonly Evaluation[],
  answers: readonly (Outcome | GatewayError)[],
): Promise<Outcome[]> {
  const refunds = parts.flatMap((part, i) => refundOf(part, answers[i]!))
  if (refunds.length === 0) return []
  const told: readonly (Outcome | GatewayError)[] = await ask(store, refunds).catch(() => [])
  return told.filter(isOutcome)
}

/** The refund of what a part has spent: nothing when it refused. */
function refundOf(part: Evaluation, answer: Outcome | GatewayError): Evaluation[] {
  if (!isOutcome(answer) || answer.status !== 'admitted') return []
  const { at, verdicts } = answer
  const allowed = new Set(verdicts.filter(verdict => verdict.allowed).map(({ rule }) => rule))
  const rules = part.rules
    .filter(({ rule, cost }) => allowed.has(rule) && cost > 0)
    // Its slot has already said whose plan it is for.
    .map(counted => ({ ...counted, rule: { ...counted.rule, match: {} }, cost: -counted.cost }))
  const now = part.now === undefined ? {} : { now: part.now }
  return rules.length > 0 ? [{ rules, plans: part.plans, spentAt: at, ...now }] : []
}

function withoutSpending(verdict: Verdict, given: Verdict | undefined): Verdict {
  return given ? { ...verdict, remaining: given.remaining, resetAfter: given.resetAfter, delay: 0 } : verdict
}

function isOutcome(answer: Outcome | GatewayError): answer is Outcome {
  return !(answer instanceof GatewayError)
}
