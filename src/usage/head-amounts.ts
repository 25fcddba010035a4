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

/** The server, or a proxy in front of it, has not taken the request. */
const NOT_TAKEN = new Set([503, 521, 522, 523, 525, 526, 529, 530])
/** Time is up, or the client has left, and the model may still be working. */
const WITHOUT_ANSWER = new Set([408, 499, 504, 524])

/**
 * Whether the head of a reply says that the origin has produced nothing: with a 4xx, with a status of a server that did not take the
 * request, and with another 5xx if the server itself reports an error in JSON. A 500 or 502 in plain text is what frameworks and proxies
 * send if the work has failed at its end.
 */
export function saysNothing({ status, headers }: ReplyHead): boolean {
  if (status < 400 || WITHOUT_ANSWER.has(status)) return false
  return status < 500 || NOT_TAKEN.has(status) || /\bjson\b/i.test(headers.get('content-type') ?? '')
}

/**
 * The amounts that are known when the head of a reply has arrived. A source without a value costs 0 if the head says that nothing was
 * produced.
 */
export function amountsOfHead(
  sources: AmountSources,
  head: ReplyHead,
): { amounts: Amounts; problems: readonly Problem[] } {
  const { status, headers } = head
  const amounts: Record<string, number> = {}
  const problems: Problem[] = []
  for (const [unit, source] of Object.entries(sources)) {
    if ('status' in source) amounts[unit] = source.status.includes(status) ? 1 : 0
    if (!('header' in source)) continue
    const { header } = source
    const text = headers.get(header)
    const amount = /^\d{1,10}$/.test(text?.trim() ?? '') ? toAmount(Number(text)) : undefined
    if (amount !== undefined || saysNothing(head)) amounts[unit] = amount ?? 0
    else if (text !== null) problems.push(badAmount(unit, `The header ${header} of a reply`))
    else problems.push({ reason: 'no-usage', unit, detail: `A reply does not have the header ${header}.` })
  }
  return { amounts, problems }
}
