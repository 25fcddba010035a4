/** Rounds, order and quantiles: the arithmetic that every measurement shares. */

/**
 * Runs every task once a round, each round in the opposite order of the one before, so that neither warm-up nor a
 * machine that slows down favours one of them.
 * @returns for each task what its rounds gave
 */
export async function inRounds<T, Name extends string>(
  rounds: number,
  tasks: Record<Name, () => Promise<T>>,
): Promise<Record<Name, T[]>> {
  const names = Object.keys(tasks) as Name[]
  const results = Object.fromEntries(names.map(name => [name, [] as T[]])) as Record<Name, T[]>
  for (let round = 0; round < rounds; round++) {
    const order = round % 2 === 0 ? names : names.toReversed()
    for (const name of order) results[name].push(await tasks[name]())
  }
  return results
}

/** How long each of `count` runs took, one at a time, in milliseconds. */
export async function times(count: number, run: (i: number) => Promise<unknown>): Promise<number[]> {
  const taken: number[] = []
  for (let i = 0; i < count; i++) {
    const start = performance.now()
    await run(i)
    taken.push(performance.now() - start)
  }
  return taken
}

/** The smallest value that at least this share of all values does not exceed. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)]!
}

export const median = (values: readonly number[]) => quantile(values, 0.5)

/** Runs `count` times with so many runs in flight at any moment. */
export async function inFlight(
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

/** Waits, where need be, so that what takes this long stays within one second of the wall clock. */
export async function roomInSecond(milliseconds: number): Promise<void> {
  const gone = Date.now() % 1000
  if (gone + milliseconds > 1000) await new Promise(resolve => setTimeout(resolve, 1010 - gone))
}
