/** The hook of the config that computes actual amounts. */

import { toAmount } from './head-amounts.ts'
import type { ActualHook, Amounts, Problem, ReplyHead, UsageReport } from './usage.ts'

/**
 * The report with the amounts of the hook, which override those of the sources. Never rejects. The caller bounds how long the hook can take.
 */
export async function withActualHook(
  report: UsageReport,
  hook: ActualHook,
  head: ReplyHead,
): Promise<UsageReport> {
  const { problems, ...usage } = report
  try {
    const amounts = (await hook(usage, head)) ?? {}
    return isAmounts(amounts) ? { ...report, amounts: { ...report.amounts, ...amounts } } : withProblem(BAD)
  } catch (error) {
    return withProblem(`The hook failed: ${error instanceof Error ? error.name : typeof error}.`)
  }

  function withProblem(detail: string): UsageReport {
    const problem: Problem = { reason: 'hook', detail }
    return { ...report, problems: [...problems, problem] }
  }
}

const BAD = 'The hook did not return whole numbers from 0 to 1,000,000,000 by the names of units.'

const isAmounts = (result: unknown): result is Amounts =>
  typeof result === 'object' &&
  result !== null &&
  Object.values(result).every(value => Number.isInteger(value) && toAmount(value) !== undefined)
