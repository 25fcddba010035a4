/**
 * Runs a function while the clock of this process stands still, set back by some milliseconds. @upstash/ratelimit computes
 * its windows from this clock.
 */
export async function withClockSetBack(milliseconds: number, run: () => Promise<void>): Promise<void> {
  const realNow = Date.now
  const now = realNow() - milliseconds
  Date.now = () => now
  try {
    await run()
  } finally {
    Date.now = realNow
  }
}
