/** Amounts that follow from the head of a reply. A config without other sources needs nothing else of this folder. */
import { MAX_AMOUNT } from './tokens.ts'
import type { AmountSources, Amounts, Problem, ReplyHead } from './usage.ts'

/** @param what where the value is */
export const badAmount = (unit: string, what: string): Problem => ({
  reason: 'bad-amount',
  unit,
  detail: `${what} is not a number from 0 to ${MAX_AMOUNT}, so it is not counted.`,
})

/** A number, rounded up; undefined if it is not an amount. */
export function toAmount(value: unknown): number | undefined {
  return typeof value === 'number' && value >= 0 && value <= MAX_AMOUNT ? Math.ceil(value) : undefined
}

/**
 * The amounts that are known when the head of a reply has arrived. A source without a value costs 0 in a reply with a status of 400 or
 * more.
 */
export function amountsOfHead(
  sources: AmountSources,
  { status, headers }: ReplyHead,
): { amounts: Amounts; problems: readonly Problem[] } {
  const amounts: Record<string, number> = {}
  const problems: Problem[] = []
  for (const [unit, source] of Object.entries(sources)) {
    if ('status' in source) amounts[unit] = source.status.includes(status) ? 1 : 0
    if (!('header' in source)) continue
    const { header } = source
    const text = headers.get(header)
    const amount = /^\d{1,10}$/.test(text?.trim() ?? '') ? toAmount(Number(text)) : undefined
    if (amount !== undefined || status >= 400) amounts[unit] = amount ?? 0
    else if (text !== null) problems.push(badAmount(unit, `The header ${header} of a reply`))
    else problems.push({ reason: 'no-usage', unit, detail: `A reply does not have the header ${header}.` })
  }
  return { amounts, problems }
}
