/** What `npx sluicegate doctor` prints: lines for people, and a document for programs. */
import { PRICES } from '../../ops/prices.ts'
import { type Checked, overallOf } from '../doctor/checks.ts'
import { alert, success, warning } from './output.ts'

const plain = (text: string) => text
const MARKS = {
  ok: ['ok', plain],
  limit: ['limit', warning],
  fault: ['FAULT', alert],
  unknown: ['?', plain],
} as const

/** A check, as it is printed when it is done. */
export function lineOf({ name, verdict, finding, fix }: Checked): string {
  const [mark, colored] = MARKS[verdict]
  const line = `${colored(mark.padEnd(6))} ${name.padEnd(16)} ${finding}`
  return fix ? `${line}\n${' '.repeat(24)}${fix}` : line
}

const VERDICTS = {
  works: success('works'),
  'works-with-limits': warning('works, with these limits'),
  'do-not-deploy': alert('do not deploy'),
}

/** The verdict, with what it rests on: faults first. */
export function verdictText(all: readonly Checked[]): string {
  const found = (['fault', 'limit'] as const).flatMap(kind => all.filter(({ verdict }) => verdict === kind))
  const unknown = all.filter(({ verdict }) => verdict === 'unknown').map(({ name }) => name)
  return [
    `Verdict: ${VERDICTS[overallOf(all)]}${found.length > 0 ? ':' : unknown.length > 0 ? ', as far as could be found out.' : '.'}`,
    ...found.flatMap(({ name, finding, fix }) => [`  ${name}: ${finding}`, `    Fix: ${fix}`]),
    ...(unknown.length > 0 ? [`Not found out: ${unknown.join(', ')}.`] : []),
  ].join('\n')
}

/** Its fields stay. New ones may be added. */
export const doctorDocument = (all: readonly Checked[], isStopped: boolean) => ({
  ...{ verdict: overallOf(all), stopped: isStopped, prices_of: PRICES.date },
  checks: all.map(({ name, verdict, finding, fix = null, measured = {} }) => ({
    name,
    verdict,
    finding,
    fix,
    measured,
  })),
})
