/** Lists in pages. A cursor names the last item of a page, so changes between two pages lose and repeat nothing. Opaque to callers. */
import { invalidInput } from './problems.ts'

export interface Page {
  /** The position of the last item of the page before. Absent: the first page. */
  after?: readonly string[] | undefined
  limit: number
}

/** The most and the usual number of items in a page. */
export const MAX_ITEMS = 100
export const USUAL_ITEMS = 50

/** @throws ApiError for a cursor that no reply had */
export function pageOf({ cursor, limit }: { cursor?: string | undefined; limit?: string | undefined }): Page {
  const after = cursor === undefined ? undefined : decode(cursor)
  return { after, limit: limit === undefined ? USUAL_ITEMS : Number(limit) }
}

const encode = (position: readonly string[]): string =>
  btoa(encodeURIComponent(JSON.stringify(position)))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replaceAll('=', '')

function decode(cursor: string): readonly string[] {
  try {
    const position: unknown = JSON.parse(
      decodeURIComponent(atob(cursor.replaceAll('-', '+').replaceAll('_', '/'))),
    )
    if (Array.isArray(position) && position.every(part => typeof part === 'string')) return position
  } catch {
    // The error below says it.
  }
  throw invalidInput('?cursor', 'No list has returned this cursor. Leave it out to begin again.')
}

/** Compares positions part by part, by their code units. */
export function comparePositions(a: readonly string[], b: readonly string[]): number {
  for (const [i, part] of a.entries()) {
    const other = b[i] ?? ''
    if (part !== other) return part < other ? -1 : 1
  }
  return a.length - b.length
}

/**
 * Cuts a page out of a list.
 * @param items all of them, or at least `limit + 1` of those after the cursor, sorted by position
 */
export function cutPage<T>(
  items: readonly T[],
  positionOf: (item: T) => readonly string[],
  { after, limit }: Page,
): { items: readonly T[]; cursor?: string } {
  const left = after ? items.filter(item => comparePositions(positionOf(item), after) > 0) : items
  const page = left.slice(0, limit)
  return { items: page, ...(left.length > limit && { cursor: encode(positionOf(page.at(-1)!)) }) }
}
