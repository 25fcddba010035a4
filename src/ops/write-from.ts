/** Writes that depend on what is stored. */
import { AdminError } from './admin-error.ts'
import type { AdminStore, Write } from './admin-store-shape.ts'

/** How often a write is tried, if other writers are faster. */
export const ATTEMPTS = 10

/**
 * Makes a write that depends on the text of a key.
 * @param key with its environment
 * @param prepare is called again if another writer was faster. The key must be one of the write's.
 * @throws AdminError `conflict` if other writers are always faster, or another condition of the write is not met; `store`
 */
export async function writeFrom(
  store: Pick<AdminStore, 'run' | 'write'>,
  key: string,
  prepare: (text: string | undefined) => Write,
): Promise<void> {
  let last: string | null | undefined
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const text = await store.run<string | null>('GET', key)
    const write = prepare(text ?? undefined)
    // So another condition was not met.
    if (text === last) throw write.claim ? claimLost() : conflict()
    last = text
    if (await store.write({ ...write, onlyIf: [[key, text ?? ''], ...(write.onlyIf ?? [])] })) return
  }
  throw conflict()
}

export const claimLost = () =>
  new AdminError('conflict', 'A later request with the same Idempotency-Key has taken over. Use its reply.')

export const conflict = () =>
  new AdminError(
    'conflict',
    'Another process is changing the same record at this moment. Nothing was changed. Try again.',
  )
