/** Runs work that must not affect what happens after it. @returns undefined if it throws */
export function ignoringErrors<T>(work: () => T): T | undefined {
  try {
    return work()
  } catch {
    return undefined
  }
}
