/** Examinations of `npx sluicegate doctor`, for its tests. */
import { expect } from 'vitest'
import type { Checked, Examination } from '../../src/node/doctor/checks.ts'
import type { CheckVerdict } from '../../src/node/doctor/findings.ts'

export type Stopped = (done: readonly Checked[]) => boolean

/** Runs an examination. @returns what was noted: in order, and by the names of the checks */
export async function examined(
  run: (examination: Examination) => Promise<void>,
  isStopped: Stopped = () => false,
) {
  const all: Checked[] = []
  await run({ isStopped: () => isStopped(all), note: checked => void all.push(checked) })
  return { all, by: Object.fromEntries(all.map(each => [each.name, each])) as Record<string, Checked> }
}

/** Matches a finding by its verdict, and by a part of its text, or of its fix after ` → `. */
export function found(verdict: CheckVerdict, text: string) {
  const [finding = '', fix] = text.split(' → ')
  return {
    verdict,
    finding: expect.stringContaining(finding),
    ...(fix !== undefined && { fix: expect.stringContaining(fix) }),
  }
}
