/** Rounds, order and quantiles: functions that all measurements share. */

/** Whether Redis is measured by its instructions instead of times. They hardly differ from round to round, so one round is enough. */
export const countsInstructions = process.argv.includes('--instructions')

/** Which run of the whole measurement this is, from 0 on. */
const run = process.argv.includes('--run') ? Number(process.argv[process.argv.indexOf('--run') + 1]) : 0

/**
 * Runs every task once in each round, and every other round in the opposite order, so that neither warm-up nor a machine that
 * slows down favors one of them. Every other run begins with the opposite order.
 * @returns the results of each task, one for each round
 */
export async function inRounds<T, Name extends string>(
  rounds: number,
  tasks: Record<Name, () => Promise<T>>,
): Promise<Record<Name, T[]>> {
  const names = Object.keys(tasks) as Name[]
  const results = Object.fromEntries(names.map(name => [name, [] as T[]])) as Record<Name, T[]>
  for (let round = 0; round < (countsInstructions ? 1 : rounds); round++) {
    const order = (run + round) % 2 === 0 ? names : names.toReversed()
    for (const name of order) results[name].push(await tasks[name]())
  }
  return results
}

/** Runs a function `count` times, one after the other. @returns the duration of each run in milliseconds */
export async function measureTimes(count: number, run: (i: number) => Promise<unknown>): Promise<number[]> {
  const durations: number[] = []
  for (let i = 0; i < count; i++) {
    const start = performance.now()
    await run(i)
    durations.push(performance.now() - start)
  }
  return durations
}

/** The smallest value such that at least this share of all values is not above it. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)]!
}

/** The middle value, or the mean of the two middle ones. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = (sorted.length - 1) / 2
  return (sorted[Math.floor(middle)]! + sorted[Math.ceil(middle)]!) / 2
}

/** Runs a function `count` times, with up to `most` runs in flight. */
export async function runConcurrently(
  most: number,
  count: number,
  run: (i: number) => Promise<unknown>,
): Promise<void> {
  let started = 0
  const worker = async () => {
    while (started < count) await run(started++)
  }
  await Promise.all(Array.from({ length: most }, worker))
}

/** Waits for the next second of the wall clock, unless work of this duration still fits into the current one. */
export async function roomInSecond(milliseconds: number): Promise<void> {
  const elapsed = Date.now() % 1000
  if (elapsed + milliseconds > 1000) await new Promise(resolve => setTimeout(resolve, 1010 - elapsed))
}
