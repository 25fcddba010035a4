/**
 * Runs something with the clock of this process standing still, so many milliseconds ago. @upstash/ratelimit takes
 * its windows from there.
 */
export async function atClockBack(milliseconds: number, run: () => Promise<void>): Promise<void> {
  const realNow = Date.now
  const now = realNow() - milliseconds
  Date.now = () => now
  try {
    await run()
  } finally {
    Date.now = realNow
  }
}
