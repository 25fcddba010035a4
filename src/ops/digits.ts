/** The first digits of a digest name a key or a token. They are found in a bounded number of requests and bytes, however many there are. */
import { AdminError } from './admin-error.ts'
import type { AdminStore } from './admin-store-shape.ts'
import { readIndex } from './sorted-index.ts'

export const ID_DIGITS = 12

/** How many digits distinguish digests. */
export function distinguishingDigits(digests: readonly string[]): number {
  const all = new Set(digests).size
  let digits = ID_DIGITS
  while (digits < 64 && new Set(digests.map(digest => digest.slice(0, digits))).size < all) digits += 4
  return digits
}

/** The most ids in a message. */
const SHOWN = 10

/**
 * @param index with the environment
 * @param prefix of the digest
 * @param idOf the id of a digest with so many digits
 * @returns the digest that begins with the prefix, or undefined
 * @throws AdminError `refused` if several digests begin with it
 */
export async function findDigest(
  store: AdminStore,
  what: 'key' | 'token',
  index: string,
  prefix: string,
  idOf: (digest: string, digits: number) => string,
): Promise<{ digest: string; id: string } | undefined> {
  const { members, known } = await readIndex(store, { index, from: prefix }, SHOWN + 1)
  const found = members.filter(member => member.startsWith(prefix))
  const digits = distinguishingDigits(known)
  const [digest] = found
  if (digest === undefined) return undefined
  if (found.length === 1) return { digest, id: idOf(digest, digits) }
  const all = listed(found.map(each => idOf(each, digits)))
  throw new AdminError(
    'refused',
    `More than one ${what} begins like this: ${all}. Add more digits of the ID.`,
  )
}

const listed = (ids: readonly string[]) =>
  ids.slice(0, SHOWN).join(', ') + (ids.length > SHOWN ? ', and more' : '')

/** Of an id without a record. */
export function notFound({ environment, advice }: AdminStore, what: 'key' | 'token', id: string): AdminError {
  const where = environment === undefined ? 'in the unnamed environment' : `in environment '${environment}'`
  const ended = what === 'key' ? 'expired' : 'ended'
  return new AdminError(
    'not-found',
    `There is no ${what} '${id}' ${where}: it never existed, has ${ended}, or was revoked.${advice?.notFound[what] ?? ''}`,
  )
}
