/**
 * Lists in pages. A cursor names its list, and the last item of a page, so changes between two pages lose and repeat nothing. Opaque to
 * callers.
 */
import type { Page as FoundPage, PageRequest, Position } from '../../ops/sorted-index.ts'
import { invalidInput } from './problems.ts'

/** The most and the usual number of items in a page. */
export const MAX_ITEMS = 100
export const USUAL_ITEMS = 50

/** The lists, and how many parts a position in each has. */
const PARTS = { consumers: 1, keys: 2, tokens: 1 }
type List = keyof typeof PARTS

/** @throws ApiError for a cursor that no page of this list had */
export function pageOf(
  { cursor, limit = USUAL_ITEMS }: { cursor?: string | undefined; limit?: string | number | undefined },
  list: List,
): PageRequest {
  const after = cursor === undefined ? undefined : decode(cursor, list)
  return { after, limit: Number(limit) }
}

/** Positions are ASCII. In a query, `+` would be a space. */
const encode = (list: List, position: Position): string =>
  btoa(JSON.stringify([list, ...position])).replaceAll('+', '-')

function decode(cursor: string, list: List): Position {
  try {
    const [of, ...position]: unknown[] = JSON.parse(atob(cursor.replaceAll('-', '+')))
    if (of === list && position.length === PARTS[list] && position.every(isPart)) return position
  } catch {
    // The error below says it.
  }
  throw invalidInput('?cursor', 'This list has not returned this cursor. Leave it out to begin again.')
}

/** The reply to a request for a page. */
export const pageDocument = <T, D>(
  list: List,
  { items, next }: FoundPage<T>,
  documentOf: (item: T) => D,
) => ({
  items: items.map(documentOf),
  ...(next && { cursor: encode(list, next) }),
})

const isPart = (part: unknown): part is string => typeof part === 'string' && part.length > 0
