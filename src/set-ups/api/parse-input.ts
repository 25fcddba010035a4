/** Reads values of requests with the checks of the command line, whose messages then name the place in the request. */
import { parseDuration } from '../../config/duration.ts'
import { AdminError } from '../../ops/admin-error.ts'
import { parseConsumerName, parseFutureTime, parsePlanName, parseShortText } from '../../ops/names.ts'
import { invalidInput } from './problems.ts'

/** @throws ApiError for an AdminError `usage` */
export async function parsed<T>(pointer: string, parse: () => T | Promise<T>): Promise<T> {
  try {
    return await parse()
  } catch (error) {
    throw error instanceof AdminError && error.kind === 'usage' ? invalidInput(pointer, error.message) : error
  }
}

/** The consumer in the path, as keys of the store have it. */
export const consumerOf = ({ params }: { params: Readonly<Record<string, string>> }): Promise<string> =>
  parsed('{consumer}', () => parseConsumerName(params.consumer!))

export const futureTime = (pointer: string, text: string, now: number): Promise<Date | undefined> =>
  parsed(pointer, () => parseFutureTime(text, new Date(now)))

/** @param text null, and `never`: no end */
export const endOf = async (pointer: string, text: string | null, now: number): Promise<Date | null> =>
  (text === null ? undefined : await futureTime(pointer, text, now)) ?? null

export const planOf = (text: string, plans: readonly string[]): Promise<string> =>
  parsed('/plan', () => parsePlanName(text, plans))

export const shortText = (pointer: string, text: string, what: string): Promise<string> =>
  parsed(pointer, () => parseShortText(text, what))

/** A duration in ms. @throws ApiError */
export function durationOf(pointer: string, text: string, least: number, most: number): number {
  const milliseconds = (text === '0' || text === '0s' ? 0 : (parseDuration(text) ?? Number.NaN)) / 1e3
  if (milliseconds >= least && milliseconds <= most) return milliseconds
  throw invalidInput(
    pointer,
    `Use a duration such as 10m or 24h, from ${least / 1e3} s to ${most / 86400e3} d.`,
  )
}
