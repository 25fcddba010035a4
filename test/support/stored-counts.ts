/** Statistics in the store. */
import { countsIn } from '../../src/metrics/sums.ts'
import { statsKey } from '../../src/store/keys.ts'

/** The command that stores counters as if they had been sent at a time. */
export function storeCounts(counts: Readonly<Record<string, number>>, at = new Date()): string[] {
  const fields = Object.entries(counts).flatMap(([field, count]) => [
    ...[field, String(count)],
    ...[`h ${field}`, `${at.getUTCHours()}:${count}`],
    ...[`m ${field}`, `${at.getUTCHours() * 60 + at.getUTCMinutes()}:${count}`],
  ])
  return ['HSET', statsKey(at), ...fields]
}

/** The sums in the reply to HGETALL. */
export function storedSums(reply: unknown): Record<string, number> {
  const { '#': _, ...sums } = Object.fromEntries(countsIn((reply as unknown[]).map(String)))
  return sums
}
