/**
 * One decision over several slots of a Redis Cluster, where a script can only read the keys of one slot. Each slot decides its own
 * keys, all or nothing, in one HTTP request. If one of them refuses, a second HTTP request gives back what the others have spent.
 *
 * The slot of the consumer decides first, in a request of its own, unless the store has lately admitted the caller. Otherwise made-up
 * keys could use up rules that many callers share, because not every unit can be given back.
 *
 * If a slot has lately refused such a request, all slots are first asked what they would decide, in one HTTP request that spends
 * nothing. In a flood, nearly all requests end with that.
 *
 * If a slot does not answer and no other one refuses, the isolate decides the rules of that slot (outage/). What the others have spent
 * stays spent if it admits the request.
 *
 * A limit is never exceeded. Between the two requests, other requests may be refused that would have been admitted. Units that have
 * refilled meanwhile (gcra, token-bucket) and places in a queue (leaky-bucket) are not given back.
 */
import { appliesToPlan } from '../config/compile-rule.ts'
import { GatewayError } from '../errors.ts'
import type { DecideVerb } from '../script/decide.ts'
import {
  consumerKeyOf,
  type Evaluation,
  type Outcome,
  type Subject,
  type Verdict,
  withAgreement,
} from '../script/evaluation.ts'
import type { ChangeResult, Refund } from '../script/refund.ts'
import { writtenNumbers } from '../script/wire.ts'
import { hashTagOf, withConsumer } from '../store/keys.ts'
import type { CallListener, Store, StoreCall } from '../store/store.ts'
import { refusesGuesses } from './decision.ts'
import type { AdmittedInPart, EvaluateOnCluster, EvaluateOptions, SlotFailure } from './evaluate.ts'
import { type PreparedCall, prepareDecide, prepareLookUp, prepareRefund, runCalls } from './prepared-call.ts'
import { SlotRefusals } from './slot-refusals.ts'

/**
 * Evaluates over all slots.
 * @throws GatewayError of a slot that has not answered, if no other slot refuses
 */
export const evaluateOnCluster: EvaluateOnCluster = async (store, evaluation, options) => {
  const { verb, undoStore } = options
  const found = await findConsumer(store, evaluation, options.listener?.line)
  if ('status' in found) return found
  const asked = await askSlots(store, splitBySlot(found.evaluation), options)
  const outcome = await joinSlots(undoStore, found.evaluation, asked, verb !== 'peek')
  return {
    ...outcome,
    ...(asked.spent.length > 0 && { isBySlot: true as const }),
    ...(found.consumer !== undefined && { consumer: found.consumer }),
  }
}

/** The answers of slots. */
interface SlotAnswers {
  /** The parts that were decided, in the order of their answers, which come first. */
  spent: readonly Evaluation[]
  answers: readonly (Outcome | GatewayError)[]
}

/** Of each store, so of each engine. */
const refusalsOfStores = new WeakMap<Store, SlotRefusals>()

function refusalsOf(store: Store): SlotRefusals {
  const refusals = refusalsOfStores.get(store) ?? new SlotRefusals()
  refusalsOfStores.set(store, refusals)
  return refusals
}

/**
 * Asks all slots in one HTTP request. If a refusal is likely, this is a peek, and only if all slots would admit, they are asked again.
 * If the caller is not known, the slot of its consumer is asked before the others.
 */
async function askSlots(
  store: Store,
  parts: readonly Evaluation[],
  { verb, isCallerKnown, listener, undoStore, now }: EvaluateOptions,
): Promise<SlotAnswers> {
  const refusals = refusalsOf(store)
  const isRefusalLikely = () => parts.some(({ rules }) => refusals.areLikely(rules, now()))

  /** @param onTurn called while the calls wait for their turn, the last time right before they are sent */
  async function ask(
    asked: readonly Evaluation[],
    verb: DecideVerb,
    listener?: CallListener,
    onTurn?: (calls: readonly PreparedCall<Outcome>[]) => void,
  ) {
    const calls = asked.map(part => prepareDecide(part, verb))
    let sentAt = now()
    const answers = await runCalls(store, calls, {
      ...listener,
      isNoLongerNeeded() {
        sentAt = now()
        onTurn?.(calls)
        return listener?.isNoLongerNeeded?.() ?? false
      },
    })
    for (const [i, answer] of answers.entries())
      refusals.note(asked[i]!.rules, isAnswer(answer) ? answer.verdicts : undefined, sentAt, now())
    return answers
  }

  if (parts.length === 1 || verb === 'peek') {
    return { spent: verb === 'peek' ? [] : parts, answers: await ask(parts, verb, listener) }
  }
  let isPeek = isRefusalLikely()
  const home = parts.find(({ subject }) => subject && subject.kind !== 'failed')
  if (!home || isPeek || isCallerKnown()) {
    const answers = await ask(parts, isPeek ? 'peek' : verb, listener, calls => {
      // In a flood, the answers to other requests arrive while the calls wait.
      if (isPeek || !isRefusalLikely()) return
      isPeek = true
      for (const { call } of calls) turnIntoPeek(call)
    })
    if (!isPeek) return { spent: parts, answers }
    if (isDecided(answers, parts)) return { spent: [], answers }
    // All slots would admit, so a credential is valid.
    return { spent: parts, answers: await ask(parts, verb, listener) }
  }
  const [first] = await ask([home], verb, listener)
  const others = parts.filter(part => part !== home)
  const isOver = !isAnswer(first!) || first.status === 'unknown-credential' || first.status === 'other-mode'
  if (isOver) return { spent: [home], answers: [first!] }
  // A reply that refuses needs to know what the others have left, and whether there were too many guesses.
  const isAdmitted = first.status === 'admitted'
  // The slot of the consumer has decided, so from here on the replies are needed.
  const { line } = listener ?? {}
  const rest = await ask(others, isAdmitted ? 'decide' : 'peek', { line }).catch(async error => {
    if (!(error instanceof GatewayError)) throw error
    await refundAndCountGuesses(undoStore, [home], [first], [])
    throw new GatewayError(error.code, error.message, { cause: error, fate: 'may-have-run' })
  })
  return { spent: isAdmitted ? [home, ...others] : [home], answers: [first, ...rest] }
}

/** Turns a decision that was not sent yet into a peek. The replies to both are decoded alike, because several slots grant no lease. */
function turnIntoPeek(call: StoreCall): void {
  if ('args' in call) Object.assign(call, { args: ['peek', ...call.args.slice(1)] })
}

/** Whether a peek has shown the decision: nothing would be spent. Also if a slot does not answer, because it would not answer again. */
function isDecided(answers: SlotAnswers['answers'], parts: readonly Evaluation[]): boolean {
  const [subject] = parts.flatMap(({ subject }) => subject ?? [])
  const status = statusOf(answers.filter(isAnswer), subject)
  // A credential that is known to be bad is counted by the rules on bad credentials.
  if (status === 'unknown-credential') return subject?.kind !== 'failed'
  return status !== 'admitted' || !answers.every(isAnswer)
}

/**
 * Replaces a pointer (opaque key) by its consumer. The pointer is in another slot than the consumer, so it is read first, in a separate trip.
 * After too many guesses, a good key must not take more trips than a bad one, so this trip also asks for them.
 * @returns the refusal after too many guesses
 */
async function findConsumer(
  store: Store,
  evaluation: Evaluation,
  line: CallListener['line'],
): Promise<{ evaluation: Evaluation; consumer?: string } | Outcome> {
  const { subject, rules } = evaluation
  if (subject?.kind !== 'pointer') return { evaluation }
  const guesses = splitBySlot({ ...evaluation, subject: { kind: 'failed' } })
  const peeks = guesses.map(guess => prepareDecide(guess, 'peek'))
  const answers = await runCalls<Outcome | string | undefined>(
    store,
    [...peeks, prepareLookUp(subject.pointerKey)],
    { line },
  )
  const consumer = answers.pop() as string | undefined | GatewayError
  if (consumer instanceof GatewayError) throw consumer
  const outcomes = answers.filter(isAnswer) as Outcome[]
  if (outcomes.some(({ verdicts }) => refusesGuesses(verdicts))) {
    const at = Math.max(...outcomes.map(outcome => outcome.at))
    return { status: 'refused', plan: '', at, verdicts: outcomes.flatMap(({ verdicts }) => verdicts) }
  }
  if (consumer === undefined) return { evaluation: { ...evaluation, subject: { kind: 'failed' } } }
  const named = (key: string) => withConsumer(key, consumer)
  const key: Subject = {
    kind: 'key',
    consumerKey: named(subject.consumerKey),
    credentialKey: named(subject.credentialKey),
    ...(subject.mode && { mode: subject.mode }),
  }
  const bound = rules.map(({ key, sideKey, ...rest }) => ({
    ...rest,
    key: named(key),
    ...(sideKey && { sideKey: named(sideKey) }),
  }))
  return { evaluation: { ...evaluation, subject: key, rules: bound }, consumer }
}

/**
 * Splits an evaluation by slot. Only the slot of the consumer gets the subject and knows the plan. Several slots grant no lease,
 * because each of them could grant another number of requests.
 */
export function splitBySlot({ rules, subject, wantedRequests, ...rest }: Evaluation): Evaluation[] {
  // Without a consumer there is no home slot, and only rules on bad credentials count.
  const isFailed = subject?.kind === 'failed'
  const counted = isFailed ? rules.filter(({ rule }) => rule.on === 'auth-failure') : rules
  const bySlot = Map.groupBy(counted, ({ key }) => hashTagOf(key))
  const home = subject && !isFailed ? hashTagOf(subject.consumerKey) : undefined
  if (home !== undefined && !bySlot.has(home)) bySlot.set(home, [])
  return [...bySlot].map(([slot, rules]) => ({
    ...{ ...rest, rules },
    ...(subject && (isFailed || slot === home) && { subject }),
    ...(bySlot.size === 1 && { wantedRequests }),
  }))
}

/**
 * Joins the answers of the slots to one outcome. If not all slots admit, gives back the spent units. If the slot of the consumer
 * does not know the credential, spends under the rules `on: 'auth-failure'`.
 * @param isDecision false: a peek, which counts no bad credential
 * @throws GatewayError of a slot that has not answered, if no other slot refuses: a SlotFailure if others have spent
 */
async function joinSlots(
  undoStore: Store,
  evaluation: Evaluation,
  { spent, answers }: SlotAnswers,
  isDecision: boolean,
): Promise<Outcome> {
  const outcomes = answers.filter(isAnswer)
  const failure = answers.find(answer => answer instanceof GatewayError)
  const status = statusOf(outcomes, evaluation.subject)
  if (failure && status === 'admitted') throw failureInPart(undoStore, failure, spent, answers)
  const at = Math.max(0, ...outcomes.map(outcome => outcome.at))
  const plan = outcomes.map(outcome => outcome.plan).find(Boolean) ?? ''
  let verdicts = outcomes.flatMap(outcome => outcome.verdicts)

  if (status !== 'admitted') {
    const isGuess = status === 'unknown-credential' && evaluation.subject?.kind !== 'failed' && isDecision
    const guesses = isGuess ? splitBySlot({ ...evaluation, subject: { kind: 'failed' } }) : []
    const { refunded, counted } = await refundAndCountGuesses(undoStore, spent, answers, guesses)
    if (isGuess) {
      const refused = counted.some(outcome => outcome.status === 'refused')
      return {
        status: refused ? 'refused' : status,
        ...{ plan: '', at, verdicts: counted.flatMap(outcome => outcome.verdicts) },
      }
    }
    const corrected = new Map(refunded.flatMap(({ verdicts }) => verdicts).map(each => [each.rule.tag, each]))
    verdicts = verdicts.map(verdict => afterRefund(verdict, corrected.get(verdict.rule.tag)))
  }
  const { mode } = outcomes.find(outcome => outcome.mode) ?? {}
  if (status === 'other-mode') return { status, mode: mode!, plan: '', at, verdicts: [] }
  if (status === 'blocked') {
    const blockedUntil = outcomes.find(outcome => outcome.blockedUntil)?.blockedUntil
    return { status, plan: '', at, verdicts: [], ...(blockedUntil && { blockedUntil }) }
  }
  if (status === 'unknown-credential') verdicts = verdicts.filter(({ rule }) => rule.on === 'auth-failure')

  const byTag = new Map(verdicts.map(verdict => [verdict.rule.tag, verdict]))
  // Variants of a rule for several plans can have one tag, because the state of a window does not depend on its limit.
  const tags = new Set(evaluation.rules.map(({ rule }) => rule.tag))
  const inOrder = [...tags].flatMap(tag => byTag.get(tag) ?? [])
  // Only a decision in a single slot can have a lease.
  const granted = outcomes.find(outcome => outcome.granted)?.granted
  const pauses = outcomes.flatMap(({ pausedUntil = [] }) => pausedUntil)
  return {
    ...{ status, plan, at, verdicts: withAgreement(inOrder) },
    ...(granted && { granted }),
    ...(pauses.length > 0 && { pausedUntil: Math.max(...pauses) }),
  }
}

/** The failure of a slot, with what the others have spent. */
function failureInPart(
  store: Store,
  failure: GatewayError,
  spent: SlotAnswers['spent'],
  answers: SlotAnswers['answers'],
): SlotFailure {
  const admitted = spent.filter((_, i) => isAnswer(answers[i]!))
  if (admitted.length === 0) return failure
  const inPart: AdmittedInPart = {
    names: new Set(admitted.flatMap(({ rules }) => rules.map(({ rule }) => rule.name))),
    verdicts: answers.filter(isAnswer).flatMap(({ verdicts }) => verdicts),
    plan: answers.filter((_, i) => spent[i]!.subject).find(isAnswer)?.plan,
    undo: async () => void (await refundAndCountGuesses(store, spent, answers, [])),
  }
  return Object.assign(new GatewayError(failure.code, failure.message, { fate: 'may-have-run' }), { inPart })
}

/** The status of the whole decision. Too many guesses come first, so that the reply says nothing about the credential. */
function statusOf(outcomes: readonly Outcome[], subject: Subject | undefined): Outcome['status'] {
  if (outcomes.some(({ verdicts }) => refusesGuesses(verdicts))) return 'refused'
  const bad = (['other-mode', 'blocked', 'unknown-credential', 'refused'] as const).find(bad =>
    outcomes.some(({ status }) => status === bad),
  )
  return bad ?? (subject?.kind === 'failed' ? 'unknown-credential' : 'admitted')
}

/**
 * Gives back what some slots have spent, and counts the bad credential, in one HTTP request. In a slot that cannot be reached, the
 * units stay spent.
 * @returns the states afterwards
 */
async function refundAndCountGuesses(
  store: Store,
  parts: readonly Evaluation[],
  answers: readonly (Outcome | GatewayError)[],
  guesses: readonly Evaluation[],
): Promise<{ refunded: ChangeResult[]; counted: Outcome[] }> {
  const refunds = parts.flatMap((part, i) => refundOfPart(part, answers[i]!))
  const calls: PreparedCall<ChangeResult | Outcome>[] = [
    ...refunds.map(prepareRefund),
    ...guesses.map(guess => prepareDecide(guess)),
  ]
  const all: readonly (ChangeResult | Outcome | GatewayError)[] = await runCalls(store, calls).catch(() => [])
  return {
    refunded: all.slice(0, refunds.length).filter(isAnswer),
    counted: all.slice(refunds.length).filter(isAnswer) as Outcome[],
  }
}

/** The refund of what a part has spent; empty if it has refused. */
export function refundOfPart(
  { ruleSet, rules, subject, now }: Evaluation,
  answer: Outcome | GatewayError,
): Refund[] {
  if (!isAnswer(answer) || answer.status !== 'admitted') return []
  const { at, verdicts, plan } = answer
  const allowed = new Map(verdicts.filter(verdict => verdict.allowed).map(({ rule }) => [rule.tag, rule]))
  const spent = rules
    .filter(({ rule, role }) => allowed.has(rule.tag) && role === 'spend' && rule.on === 'request')
    .filter(({ rule }) => appliesToPlan(rule, plan))
    .map(({ cost, ...bound }) => {
      const written = writtenNumbers(allowed.get(bound.rule.tag)!, bound.rule)
      return { ...bound, units: cost, spent: cost, written }
    })
  const consumerKey = consumerKeyOf(subject)
  return spent.length > 0 ? [{ ruleSet, rules: spent, spentAt: at, consumerKey, plan, now }] : []
}

function afterRefund(verdict: Verdict, refunded: Verdict | undefined): Verdict {
  return refunded
    ? { ...verdict, remaining: refunded.remaining, resetAfter: refunded.resetAfter, delay: 0 }
    : verdict
}

function isAnswer<T>(answer: T | GatewayError): answer is T {
  return !(answer instanceof GatewayError)
}
