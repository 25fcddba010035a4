/** Blocks of consumers in words. A block that has ended counts as no block. */
import { type ConsumerRecord, isBlocked } from '../store/records.ts'
import { printable } from './names.ts'
import { time, timeAhead } from './times.ts'

type Blocked = Pick<ConsumerRecord, 'blockedAt' | 'blockedUntil' | 'blockedBy' | 'reason'>

/**
 * `since 2026-11-21 06:00 UTC, until 2026-11-22 06:00 (in 23 h), by ops: unpaid`; an empty text if the consumer is not blocked.
 * @param zone appended to each time, as ` UTC`; empty in tables, whose heading names the zone
 */
export function blockText(record: Blocked, zone = ''): string {
  const { blockedAt, blockedBy, reason } = record
  if (!blockedAt || !isBlockedNow(record)) return ''
  const until = endOf(record)
  return [
    `since ${time(blockedAt)}${zone}`,
    until ? `, until ${timeAhead(until, zone)}` : '',
    blockedBy ? `, by ${printable(blockedBy)}` : '',
    reason ? `: ${printable(reason)}` : '',
  ].join('')
}

/** When the block ended. Undefined if the block has not ended, or if no block was set. */
export function endedBlock(record: Blocked): Date | undefined {
  return isBlockedNow(record) ? undefined : endOf(record)
}

export const isBlockedNow = (record: Blocked) => isBlocked(record, Date.now() * 1000)

const endOf = ({ blockedUntil }: Blocked) =>
  blockedUntil === undefined ? undefined : new Date(blockedUntil / 1000)
