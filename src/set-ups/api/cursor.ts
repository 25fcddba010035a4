/** Lists in pages. A cursor names the last item of a page, so changes between two pages lose and repeat nothing. Opaque to callers. */
import type { Page as FoundPage, PageRequest, Position } from '../../ops/sorted-index.ts'
import { invalidInput } from './problems.ts'

/** The most and the usual number of items in a page. */
export const MAX_ITEMS = 100
export const USUAL_ITEMS = 50

/** @param parts of the positions in this list @throws ApiError for a cursor that no reply had */
export function pageOf(
  { cursor, limit }: { cursor?: string | undefined; limit?: string | undefined },
  parts = 1,
): PageRequest {
  const after = cursor === undefined ? undefined : decode(cursor, parts)
  return { after, limit: limit === undefined ? USUAL_ITEMS : Number(limit) }
}

const encode = (position: Position): string =>
  btoa(encodeURIComponent(JSON.stringify(position)))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replaceAll('=', '')

function decode(cursor: string, parts: number): Position {
  try {
    const position: unknown = JSON.parse(
      decodeURIComponent(atob(cursor.replaceAll('-', '+').replaceAll('_', '/'))),
    )
    if (Array.isArray(position) && position.length === parts && position.every(isPart)) return position
  } catch {
    // The error below says it.
  }
  throw invalidInput('?cursor', 'No list has returned this cursor. Leave it out to begin again.')
}

/** The reply to a request for a page. */
export const pageDocument = <T, D>({ items, next }: FoundPage<T>, documentOf: (item: T) => D) => ({
  items: items.map(documentOf),
  ...(next && { cursor: encode(next) }),
})

const isPart = (part: unknown) => typeof part === 'string' && part.length > 0
