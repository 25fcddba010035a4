/**
 * Makes the pictures of docs/algorithms.md with the script inside a Redis: `npm run plots`. The times are given, so it
 * waits for nothing and makes the same bytes every time. test/docs/plots.test.ts fails when a file differs.
 */
import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { countings } from '../../../src/algorithms/all.ts'
import type { NumbersInput } from '../../../src/config/check/rule-schema.ts'
import { drawAnswers, drawTotals, type Line } from './draw.ts'
import { type Evaluate, startEngine } from './engine.ts'
import { type Answer, comparedOnly, LIMIT, PERIOD_SECONDS, replay, shown } from './scenario.ts'

/** Every picture by the name of its file. */
export async function makePlots(evaluate: Evaluate): Promise<Map<string, string>> {
  const plots = new Map<string, string>()
  const lines: Line[] = []
  for (const input of [...shown, ...comparedOnly]) {
    const { algorithm } = input
    const answers = await replay(input, evaluate)
    const name = `${algorithm}${ownNumbers(input)}`
    const same = lines.find(line => isSame(line.answers, answers))
    if (same) same.name += `\n= ${name}`
    else lines.push({ name, answers })
    if (comparedOnly.includes(input)) continue
    const picture = {
      title: `${algorithm}: ${input.limit} per ${'period' in input ? input.period : input.ttl}${ownNumbers(input)}`,
      answers,
      hasWindows: countings[algorithm].state === 'counts',
      isQueue: countings[algorithm].isQueue ?? false,
    }
    plots.set(`${algorithm}.svg`, drawAnswers(picture))
  }
  plots.set('overview.svg', drawTotals(`The same arrivals, ${LIMIT} per ${PERIOD_SECONDS}s`, lines))
  return plots
}

function ownNumbers(input: NumbersInput): string {
  return 'burst' in input ? `, burst ${input.burst}` : 'queue' in input ? `, queue ${input.queue}` : ''
}

function isSame(one: readonly Answer[], other: readonly Answer[]): boolean {
  return one.every(({ allowed }, i) => allowed === other[i]!.allowed)
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const engine = await startEngine()
  try {
    const plots = await makePlots(engine.evaluate)
    for (const [file, svg] of plots) writeFileSync(new URL(`../../pictures/${file}`, import.meta.url), svg)
    console.log(`Made ${[...plots.keys()].join(', ')} with ${engine.redis}.`)
  } finally {
    await engine.close()
  }
}
