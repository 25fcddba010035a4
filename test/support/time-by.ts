/**
 * Replaces the clocks of this process, the monotonic one too: some code reads them, and takes no others. Timers go on by real time.
 * @returns puts them back
 */
export function timeBy(nowMs: () => number): () => void {
  const RealDate = globalThis.Date
  const realNow = performance.now
  globalThis.Date = class extends RealDate {
    constructor(...of: readonly unknown[]) {
      super(...((of.length > 0 ? of : [nowMs()]) as [number]))
    }

    static override now = nowMs
  } as DateConstructor
  // From the same start at each run: some intervals are counted from there.
  performance.now = nowMs
  return () => {
    globalThis.Date = RealDate
    performance.now = realNow
  }
}
