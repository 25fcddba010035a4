/** Reads values of requests with the checks of the command line, whose messages then name the place in the request. */
import { parseDuration } from '../../config/duration.ts'
import { AdminError } from '../../ops/admin-error.ts'
import { parseConsumerName, parseFutureTime, parsePlanName, parseShortText } from '../../ops/names.ts'
import { invalidInput } from './problems.ts'
import type { Call, Services } from './route.ts'

/** @throws ApiError for an AdminError `usage` */
export async function parsed<T>(pointer: string, parse: () => T | Promise<T>): Promise<T> {
  try {
    return await parse()
  } catch (error) {
    throw error instanceof AdminError && error.kind === 'usage' ? invalidInput(pointer, error.message) : error
  }
}

/** The consumer in the path, as keys of the store have it. */
export const consumerOf = ({ params }: Pick<Call, 'params'>): Promise<string> =>
  parsed('{consumer}', () => parseConsumerName(params.consumer!))

/** The members of a body as operations take them: null instead of a time means never. */
type ValuesOf<B> = { [K in keyof B]: K extends 'expiresAt' | 'until' ? Date | null : B[K] }

/**
 * Reads the members of a body that are names, labels or times. Other members, and those that are null, stay as they are.
 * @throws ApiError for the first that is invalid
 */
export async function valuesOf<B extends object>(
  body: B,
  { config, now }: Pick<Services, 'config' | 'now'>,
): Promise<ValuesOf<B>> {
  const timeOf = (text: string) => parseFutureTime(text, new Date(now())) ?? null
  const parsers: Readonly<Record<string, (text: string, name: string) => unknown>> = {
    consumer: parseConsumerName,
    plan: text => parsePlanName(text, config.plans),
    label: parseShortText,
    name: parseShortText,
    expiresAt: timeOf,
    until: timeOf,
  }
  const values: Record<string, unknown> = {}
  for (const [name, value] of Object.entries(body)) {
    const parse = value === null ? undefined : parsers[name]
    values[name] = parse ? await parsed(`/${name}`, () => parse(value, name)) : value
  }
  return values as ValuesOf<B>
}

/** A duration in ms. @throws ApiError */
export function durationOf(pointer: string, text: string, least: number, most: number): number {
  const milliseconds = (text === '0' ? 0 : (parseDuration(text) ?? Number.NaN)) / 1e3
  if (milliseconds >= least && milliseconds <= most) return milliseconds
  throw invalidInput(
    pointer,
    `Use a duration such as 10m or 24h, from ${least / 1e3} s to ${most / 86400e3} d.`,
  )
}

/** How long the old credential of a rotation stays valid (ms). @throws ApiError */
export const overlapOf = ({ overlap = '24h' }: { overlap?: string }): number =>
  durationOf('/overlap', overlap, 0, 366 * 86_400e3)
