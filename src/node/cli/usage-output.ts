/** What is printed about rules that are settled later: what is used, reserved and owed. */
import type { Usage } from '../../ops/limits.ts'
import { alertCell, type Cell } from './output.ts'

export const USAGE_HEADINGS = ['USED', 'RESERVED', 'DEBT']

/** `2731`, `2000 (1 request)`, `0` */
export function usageCells({ used, reserved: { units, requests, isPartial }, debt }: Usage): Cell[] {
  const of = requests === 1 ? '1 request' : `${requests} requests`
  const reserved = requests === 0 ? '0' : `${isPartial ? 'at least ' : ''}${units} (${of})`
  return [String(used), reserved, debt > 0 ? alertCell(String(debt)) : '0']
}
