/**
 * One decision over several slots of a Redis Cluster, where no script can see them all. Each slot decides for its own
 * keys, all or nothing, in one HTTP request; when one of them refuses, a second request gives back what the others have
 * spent. A limit is never exceeded: between the two, requests of others may be refused that would have been admitted. Units that
 * have come back by themselves meanwhile (gcra, token-bucket) and places in a queue (leaky-bucket) are not given back.
 */
import { GatewayError } from '../errors.ts'
import type { DecideVerb } from '../script/decide.ts'
import {
  type Evaluation,
  type Outcome,
  type Subject,
  type Verdict,
  withAgreement,
} from '../script/evaluation.ts'
import type { Changed, Refund } from '../script/refund.ts'
import { UNKNOWN_CONSUMER_TAG } from '../store/keys.ts'
import type { Store } from '../store/store.ts'
import { ask, askAll, type Question, toDecide, toLookUp, toRefund } from './ask.ts'

/** @throws GatewayError of a slot that has not answered, where no other refuses */
export async function evaluateOnCluster(
  store: Store,
  evaluation: Evaluation,
  verb: DecideVerb = 'decide',
  undoStore: Store = store,
): Promise<Outcome> {
  const found = await findConsumer(store, evaluation)
  const parts = splitBySlot(found.evaluation)
  const answers = await askAll(
    store,
    parts.map(part => toDecide(part, verb)),
  )
  const spent = verb === 'peek' ? [] : parts
  const outcome = await joinSlots(undoStore, found.evaluation, spent, answers)
  return found.consumer === undefined ? outcome : { ...outcome, consumer: found.consumer }
}

/** A pointer lies in another slot than the records that it leads to, so it is read first, in a separate request. */
async function findConsumer(
  store: Store,
  evaluation: Evaluation,
): Promise<{ evaluation: Evaluation; consumer?: string }> {
  const { subject, rules } = evaluation
  if (subject?.kind !== 'pointer') return { evaluation }
  const consumer = await ask(store, toLookUp(subject.pointerKey))
  if (consumer === undefined) return { evaluation: { ...evaluation, subject: { kind: 'failed' } } }
  const named = (key: string) => key.replace(UNKNOWN_CONSUMER_TAG, `{c:${consumer}}`)
  const key: Subject = {
    kind: 'key',
    consumerKey: named(subject.consumerKey),
    credentialKey: named(subject.credentialKey),
  }
  const bound = rules.map(({ key, ownKey, ...rest }) => ({
    ...rest,
    key: named(key),
    ...(ownKey && { ownKey: named(ownKey) }),
  }))
  return { evaluation: { ...evaluation, subject: key, rules: bound }, consumer }
}

/** The hash tag, which decides the slot of a key: the text in the first braces. */
function hashTagOf(key: string): string {
  return /\{(.+?)\}/.exec(key)?.[1] ?? key
}

/**
 * One evaluation for each slot. Only the slot of the consumer gets the subject; the others know no plan. Of several slots each
 * would spend for another number of requests, so they spend for one.
 */
export function splitBySlot(evaluation: Evaluation): Evaluation[] {
  const parts = partsOf(evaluation)
  return parts.length > 1 ? parts.map(({ want: _, ...part }) => part) : parts
}

function partsOf(evaluation: Evaluation): Evaluation[] {
  const { rules, subject, ...rest } = evaluation
  if (subject?.kind === 'failed') {
    // An unknown consumer has no slot.
    const guesses = rules.filter(({ rule }) => rule.on === 'auth-failure')
    const bySlot = Map.groupBy(guesses, ({ key }) => hashTagOf(key))
    return [...bySlot.values()].map(rules => ({ ...rest, rules, subject }))
  }
  const bySlot = Map.groupBy(rules, ({ key }) => hashTagOf(key))
  const home = subject && hashTagOf(subject.consumerKey)
  if (home && !bySlot.has(home)) bySlot.set(home, [])
  return [...bySlot].map(([slot, rules]) => ({
    ...{ ...rest, rules },
    ...(subject && slot === home && { subject }),
  }))
}

/**
 * The answers of the slots as one outcome. Gives back the spent units when not all slots admit, and spends the rules
 * `on: 'auth-failure'` when the slot of the consumer does not know the credential.
 * @param spent the parts that were decided, in the order of their answers; none where nothing was spent
 * @throws GatewayError of a slot that has not answered, where no other refuses
 */
async function joinSlots(
  undoStore: Store,
  evaluation: Evaluation,
  spent: readonly Evaluation[],
  answers: readonly (Outcome | GatewayError)[],
): Promise<Outcome> {
  const outcomes = answers.filter(isAnswer)
  const failure = answers.find(answer => answer instanceof GatewayError)
  const status = statusOf(outcomes, evaluation.subject)
  if (failure && status === 'admitted') throw failure
  const at = Math.max(0, ...outcomes.map(outcome => outcome.at))
  const plan = outcomes.map(outcome => outcome.plan).find(Boolean) ?? ''
  let verdicts = outcomes.flatMap(outcome => outcome.verdicts)

  if (status !== 'admitted') {
    const isGuess =
      status === 'unknown-credential' && evaluation.subject?.kind !== 'failed' && spent.length > 0
    const guesses = isGuess ? splitBySlot({ ...evaluation, subject: { kind: 'failed' } }) : []
    const { refunded, counted } = await undo(undoStore, spent, answers, guesses)
    if (isGuess) {
      const refused = counted.some(outcome => outcome.status === 'refused')
      return {
        status: refused ? 'refused' : status,
        ...{ plan: '', at, verdicts: counted.flatMap(outcome => outcome.verdicts) },
      }
    }
    const corrected = new Map(refunded.flatMap(({ verdicts }) => verdicts).map(each => [each.rule.tag, each]))
    verdicts = verdicts.map(verdict => withoutSpending(verdict, corrected.get(verdict.rule.tag)))
  }
  if (status === 'blocked') return { status, plan: '', at, verdicts: [] }
  if (status === 'unknown-credential') verdicts = verdicts.filter(({ rule }) => rule.on === 'auth-failure')

  const byTag = new Map(verdicts.map(verdict => [verdict.rule.tag, verdict]))
  // The rows of several plans can have one tag: the state of a window is the same whatever its limit.
  const tags = new Set(evaluation.rules.map(({ rule }) => rule.tag))
  const inOrder = [...tags].flatMap(tag => byTag.get(tag) ?? [])
  // Only a decision in one slot takes a lease.
  const granted = outcomes.find(outcome => outcome.granted)?.granted
  return { status, plan, at, verdicts: withAgreement(inOrder), ...(granted && { granted }) }
}

/** Too many guesses are refused before the answer says anything about the credential. */
function statusOf(outcomes: readonly Outcome[], subject: Subject | undefined): Outcome['status'] {
  const hasGuessedTooOften = outcomes.some(({ verdicts }) =>
    verdicts.some(({ rule, mode, allowed }) => rule.on === 'auth-failure' && mode === 'enforce' && !allowed),
  )
  if (hasGuessedTooOften) return 'refused'
  const bad = (['blocked', 'unknown-credential', 'refused'] as const).find(bad =>
    outcomes.some(({ status }) => status === bad),
  )
  return bad ?? (subject?.kind === 'failed' ? 'unknown-credential' : 'admitted')
}

/**
 * Gives back what some slots have spent and counts the bad credential, in one request. A slot that cannot be reached keeps what it
 * has spent.
 * @returns how things stand afterwards
 */
async function undo(
  store: Store,
  parts: readonly Evaluation[],
  answers: readonly (Outcome | GatewayError)[],
  guesses: readonly Evaluation[],
): Promise<{ refunded: Changed[]; counted: Outcome[] }> {
  const refunds = parts.flatMap((part, i) => refundOf(part, answers[i]!))
  const questions: Question<Changed | Outcome>[] = [
    ...refunds.map(toRefund),
    ...guesses.map(guess => toDecide(guess)),
  ]
  const all: readonly (Changed | Outcome | GatewayError)[] = await askAll(store, questions).catch(() => [])
  return {
    refunded: all.slice(0, refunds.length).filter(isAnswer),
    counted: all.slice(refunds.length).filter(isAnswer) as Outcome[],
  }
}

/** The refund of what a part has spent: none when it refused. */
function refundOf({ policy, rules, subject, now }: Evaluation, answer: Outcome | GatewayError): Refund[] {
  if (!isAnswer(answer) || answer.status !== 'admitted') return []
  const { at, verdicts, plan } = answer
  const allowed = new Set(verdicts.filter(verdict => verdict.allowed).map(({ rule }) => rule.tag))
  const spent = rules
    .filter(({ rule, role }) => allowed.has(rule.tag) && role === 'spend' && rule.on === 'request')
    .filter(({ rule }) => rule.match.plans?.includes(plan) ?? true)
    .map(({ cost, ...bound }) => ({ ...bound, units: cost, spent: cost }))
  const consumerKey = subject && 'consumerKey' in subject ? subject.consumerKey : undefined
  return spent.length > 0 ? [{ policy, rules: spent, spentAt: at, consumerKey, plan, now }] : []
}

function withoutSpending(verdict: Verdict, refunded: Verdict | undefined): Verdict {
  return refunded
    ? { ...verdict, remaining: refunded.remaining, resetAfter: refunded.resetAfter, delay: 0 }
    : verdict
}

function isAnswer<T>(answer: T | GatewayError): answer is T {
  return !(answer instanceof GatewayError)
}
