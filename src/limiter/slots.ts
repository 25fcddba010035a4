/**
 * One decision over several slots of a Redis Cluster, where no script can see them all. Each slot decides for its own
 * keys, all or nothing, in one HTTP request; when one of them refuses, what the others have spent is given back with a
 * second. A limit is never exceeded: between the two, others may be refused who would have been admitted, and what has
 * come back by itself meanwhile (gcra, token-bucket) or stands in a queue (leaky-bucket) is not given back.
 */
import { GatewayError } from '../errors.ts'
import { UNKNOWN_CONSUMER_TAG } from '../store/keys.ts'
import type { Store } from '../store/store.ts'
import { ask, type Evaluation, type Outcome, type Verdict, type Who, withAgreement } from './wire.ts'

/** @throws GatewayError of a slot that has not answered, where no other refuses */
export async function evaluateOnCluster(store: Store, evaluation: Evaluation): Promise<Outcome> {
  const found = await findConsumer(store, evaluation)
  const parts = splitBySlot(found.evaluation)
  const answers = await ask(store, parts)
  const outcome = await joinSlots(store, found.evaluation, parts, answers)
  return found.consumer === undefined ? outcome : { ...outcome, consumer: found.consumer }
}

/** A pointer lies in another slot than what it leads to, so it is followed first, by a request of its own. */
async function findConsumer(
  store: Store,
  evaluation: Evaluation,
): Promise<{ evaluation: Evaluation; consumer?: string }> {
  const { who, rules } = evaluation
  if (who?.kind !== 'pointer') return { evaluation }
  const [answer] = await ask(store, [
    { rules: [], plans: evaluation.plans, who: { kind: 'lookup', pointerKey: who.pointerKey } },
  ])
  if (answer instanceof GatewayError) throw answer
  const consumer = answer?.consumer
  if (consumer === undefined) return { evaluation: { ...evaluation, who: { kind: 'failed' } } }
  const named = (key: string) => key.replace(UNKNOWN_CONSUMER_TAG, `{c:${consumer}}`)
  const key: Who = {
    kind: 'key',
    consumerKey: named(who.consumerKey),
    credentialKey: named(who.credentialKey),
  }
  const counted = rules.map(({ key, logKey, ...rest }) => ({
    ...rest,
    key: named(key),
    ...(logKey && { logKey: named(logKey) }),
  }))
  return { evaluation: { ...evaluation, who: key, rules: counted }, consumer }
}

/** The hash tag, which decides a key's slot: what stands in the first braces. */
function hashTagOf(key: string): string {
  return /\{(.+?)\}/.exec(key)?.[1] ?? key
}

/** One evaluation a slot. Who calls goes with the slot of the consumer; the others know no plan. */
export function splitBySlot(evaluation: Evaluation): Evaluation[] {
  const { rules, who, ...rest } = evaluation
  if (who?.kind === 'failed') {
    // A consumer that nobody knows has no slot.
    const guesses = rules.filter(({ rule }) => rule.on === 'auth-failure')
    const bySlot = Map.groupBy(guesses, ({ key }) => hashTagOf(key))
    return [...bySlot.values()].map(rules => ({ ...rest, rules, who }))
  }
  const bySlot = Map.groupBy(rules, ({ key }) => hashTagOf(key))
  const home = who && 'consumerKey' in who ? hashTagOf(who.consumerKey) : undefined
  if (home && !bySlot.has(home)) bySlot.set(home, [])
  return [...bySlot].map(([slot, rules]) => ({ ...rest, rules, ...(who && slot === home && { who }) }))
}

/**
 * What the slots said, as one outcome; gives back what was spent when not all of them admit, and spends the rules
 * `on: 'auth-failure'` when the slot of the consumer does not know the credential.
 * @throws GatewayError of a slot that has not answered, where no other refuses
 */
export async function joinSlots(
  store: Store,
  evaluation: Evaluation,
  parts: readonly Evaluation[],
  answers: readonly (Outcome | GatewayError)[],
): Promise<Outcome> {
  const outcomes = answers.filter(isOutcome)
  const failure = answers.find(answer => answer instanceof GatewayError)
  const status = statusOf(outcomes, evaluation.who)
  if (failure && status === 'admitted') throw failure
  const at = Math.max(0, ...outcomes.map(outcome => outcome.at))
  const plan = outcomes.map(outcome => outcome.plan).find(Boolean) ?? ''
  let verdicts = outcomes.flatMap(outcome => outcome.verdicts)

  if (status !== 'admitted') {
    const isGuess = status === 'unknown-credential' && evaluation.who?.kind !== 'failed'
    const guesses = isGuess ? splitBySlot({ ...evaluation, who: { kind: 'failed' } }) : []
    const { given, told } = await settleRefusal(store, parts, answers, guesses)
    if (isGuess) {
      const refused = told.some(outcome => outcome.status === 'refused')
      return {
        status: refused ? 'refused' : status,
        ...{ plan: '', at, verdicts: told.flatMap(outcome => outcome.verdicts) },
      }
    }
    const corrected = new Map(given.flatMap(({ verdicts }) => verdicts).map(each => [each.rule.tag, each]))
    verdicts = verdicts.map(verdict => withoutSpending(verdict, corrected.get(verdict.rule.tag)))
  }
  if (status === 'blocked') return { status, plan: '', at, verdicts: [] }

  const byTag = new Map(verdicts.map(verdict => [verdict.rule.tag, verdict]))
  // The rows of several plans can have one tag: a window's state is the same whatever its limit.
  const tags = new Set(evaluation.rules.map(({ rule }) => rule.tag))
  const inOrder = [...tags].flatMap(tag => byTag.get(tag) ?? [])
  return { status, plan, at, verdicts: withAgreement(inOrder) }
}

/** Who has guessed too often is refused before it is said whether the credential was good. */
function statusOf(outcomes: readonly Outcome[], who: Who | undefined): Outcome['status'] {
  const hasGuessedTooOften = outcomes.some(({ verdicts }) =>
    verdicts.some(({ rule, mode, allowed }) => rule.on === 'auth-failure' && mode === 'enforce' && !allowed),
  )
  if (hasGuessedTooOften) return 'refused'
  const bad = (['blocked', 'unknown-credential', 'refused'] as const).find(bad =>
    outcomes.some(({ status }) => status === bad),
  )
  return bad ?? (who?.kind === 'failed' ? 'unknown-credential' : 'admitted')
}

/**
 * Gives back what some slots have spent and counts the bad credential, in one request.
 * @returns how things stand then; of a slot that cannot be reached nothing, and what it has spent stays spent
 */
async function settleRefusal(
  store: Store,
  parts: readonly Evaluation[],
  answers: readonly (Outcome | GatewayError)[],
  guesses: readonly Evaluation[],
): Promise<{ given: Outcome[]; told: Outcome[] }> {
  const refunds = parts.flatMap((part, i) => refundOf(part, answers[i]!))
  if (refunds.length + guesses.length === 0) return { given: [], told: [] }
  const all: readonly (Outcome | GatewayError)[] = await ask(store, [...refunds, ...guesses]).catch(() => [])
  return {
    given: all.slice(0, refunds.length).filter(isOutcome),
    told: all.slice(refunds.length).filter(isOutcome),
  }
}

/** The refund of what a part has spent: nothing when it refused. */
function refundOf(part: Evaluation, answer: Outcome | GatewayError): Evaluation[] {
  if (!isOutcome(answer) || answer.status !== 'admitted') return []
  const { at, verdicts, plan } = answer
  const allowed = new Set(verdicts.filter(verdict => verdict.allowed).map(({ rule }) => rule.tag))
  const rules = part.rules
    .filter(({ rule, cost }) => allowed.has(rule.tag) && cost > 0 && rule.on === 'request')
    .filter(({ rule }) => rule.match.plans?.includes(plan) ?? true)
    // Its slot has already said whose plan it is for.
    .map(counted => ({ ...counted, rule: { ...counted.rule, match: {} }, cost: -counted.cost }))
  const { plans, who, now } = part
  const rest = { ...(who && { who }), ...(now !== undefined && { now }) }
  return rules.length > 0 ? [{ rules, plans, spentAt: at, ...rest }] : []
}

function withoutSpending(verdict: Verdict, given: Verdict | undefined): Verdict {
  return given ? { ...verdict, remaining: given.remaining, resetAfter: given.resetAfter, delay: 0 } : verdict
}

function isOutcome(answer: Outcome | GatewayError): answer is Outcome {
  return !(answer instanceof GatewayError)
}
