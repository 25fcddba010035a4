/** What an isolate may answer by itself: which requests get one answer, whether it still holds, and how it ages. Pure. */
import type { RememberedCaller } from '../credentials/caller-memory.ts'
import type { BoundRule, Evaluation, Outcome } from '../script/evaluation.ts'

type AskedBy = Pick<Evaluation, 'subject' | 'plan'>

/**
 * Requests with one name are decided alike, but for what they cost. No key holds a line break, and no name of a rule a space.
 * @param caller absent: whoever it is
 */
export function nameOf(rules: readonly BoundRule[], caller?: AskedBy): string {
  let name = caller ? callerName(caller) : 'anyone'
  for (const { rule, key, mode, role } of rules) name += `\n${rule.name} ${mode} ${role} ${key}`
  return name
}

function callerName({ subject, plan = '' }: AskedBy): string {
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

/** Whether an outcome is in line with what the isolate has learnt of the credential by other requests since. */
export function agrees(
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

/** The outcome as it stands some time later. @param elapsed µs */
export function aged(outcome: Outcome, elapsed: number): Outcome {
  const verdicts = outcome.verdicts.map(verdict => ({
    ...verdict,
    resetAfter: Math.max(0, verdict.resetAfter - elapsed),
    retryAfter: verdict.retryAfter > 0 ? Math.max(1, verdict.retryAfter - elapsed) : verdict.retryAfter,
  }))
  return { ...outcome, verdicts }
}
