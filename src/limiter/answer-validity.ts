/** When an answer of the store may be reused: for which requests, whether it is still valid, and with which times. Pure. */
import type { RememberedCaller } from '../credentials/caller-memory.ts'
import type { BoundRule, Evaluation, Outcome } from '../script/evaluation.ts'

type Caller = Pick<Evaluation, 'subject' | 'plan'>

/**
 * The key under which an answer is stored: requests with the same key are decided alike, except for their costs. It is unambiguous,
 * because keys contain no line break, and names of rules no space.
 * @param caller absent: the answer is valid for all callers
 */
export function answerKeyOf(rules: readonly BoundRule[], caller?: Caller): string {
  let answerKey = caller ? callerKeyOf(caller) : 'anyone'
  for (const { rule, key, mode, role } of rules) answerKey += `\n${rule.name} ${mode} ${role} ${key}`
  return answerKey
}

function callerKeyOf({ subject, plan = '' }: Caller): string {
  switch (subject?.kind) {
    case 'key':
      return subject.credentialKey
    case 'pointer':
      return subject.pointerKey
    case 'token':
      return `token ${subject.plan ?? ''} ${subject.consumerKey}`
    case 'failed':
    case undefined:
      return `plan ${plan}`
  }
}

/** Whether an outcome is consistent with the last answers of the store about the credential. */
export function isConsistent(
  { status, plan }: Pick<Outcome, 'status' | 'plan'>,
  seen: RememberedCaller | undefined,
): boolean {
  if (!seen) return true
  switch (status) {
    case 'blocked':
      return seen.isBlocked === true
    case 'unknown-credential':
      return seen.plan === undefined
    default:
      return !seen.isBlocked && (!plan || seen.plan === undefined || seen.plan === plan)
  }
}

/** The outcome with its times counted down. @param elapsed µs since the store answered */
export function countDown(outcome: Outcome, elapsed: number): Outcome {
  const verdicts = outcome.verdicts.map(verdict => ({
    ...verdict,
    resetAfter: Math.max(0, verdict.resetAfter - elapsed),
    retryAfter: verdict.retryAfter > 0 ? Math.max(1, verdict.retryAfter - elapsed) : verdict.retryAfter,
  }))
  return { ...outcome, verdicts }
}
