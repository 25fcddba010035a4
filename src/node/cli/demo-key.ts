/** The key that `npm start` shows: one that works with the Worker as it is now. */
import type { KeySecret } from '../../credentials/key-signature.ts'
import { AdminError } from '../../ops/admin-error.ts'
import { type AdminStore, createAdminStore } from '../../ops/admin-store.ts'
import { revokeKey } from '../../ops/key-changes.ts'
import { findKey } from '../../ops/key-reference.ts'
import { createKey, removeFromIndexIfEmpty } from '../../ops/keys.ts'
import { isOnThisMachine } from '../../ops/store-failure.ts'
import { sha256 } from '../../sha256.ts'
import type { KeySettings } from '../start/worker-messages.ts'
import { askUser } from './administration.ts'

const CONSUMER = 'demo'
/** A demo key that a killed process leaves in a lasting store must not live for ever. */
const LIFETIME_MS = 86400e3

/**
 * Whether `npm start` may write a demo key. The user has to agree for a store on another machine: it may serve real traffic.
 * @param url of the store, or of its Redis
 * @param terminal `ask` is absent if there is no terminal
 */
export async function mayWriteDemoKey(
  url: string,
  { ask }: { ask?: (question: string) => Promise<boolean> } = process.stdin.isTTY ? { ask: askUser } : {},
): Promise<boolean> {
  if (isOnThisMachine(url)) return true
  const { hostname } = new URL(url)
  if (ask)
    return await ask(
      `The store at ${hostname} is not on this machine. Write a demo key into it, valid for a day and removed on exit?`,
    )
  console.error(
    `The store at ${hostname} is not on this machine, and there is no terminal to ask on: no demo key is written.`,
  )
  return false
}

export interface DemoKey {
  /** Makes one for these settings, instead of the one before. */
  renew(settings: KeySettings): Promise<string>
  /** Whether the store still has it. */
  isStored(): Promise<boolean>
  /** Removes it. */
  forget(): Promise<void>
}

/** @param keySecret signs the key */
export function demoKey(rest: { url: string; token: string }, keySecret?: KeySecret): DemoKey {
  let current: { store: AdminStore; key: string } | undefined
  return { renew, isStored, forget }

  async function isStored(): Promise<boolean> {
    if (!current) return false
    try {
      await findKey(current.store, current.key)
      return true
    } catch (error) {
      if (error instanceof AdminError && error.kind === 'not-found') return false
      throw error
    }
  }

  async function renew({ environment, keyPrefix }: KeySettings): Promise<string> {
    await forget()
    const store = createAdminStore({ ...rest, environment, keyPrefix, keySecret })
    const expiresAt = new Date(Date.now() + LIFETIME_MS)
    const { key } = await createKey(store, { consumer: CONSUMER, expiresAt })
    current = { store, key }
    return key
  }

  async function forget(): Promise<void> {
    if (!current) return
    const { store, key } = current
    current = undefined
    try {
      await revokeKey(store, { consumer: CONSUMER, digest: sha256(key) })
      // The consumer stays if another `npm start` has a demo key in the same store.
      await removeFromIndexIfEmpty(store, CONSUMER)
    } catch {
      // The store may be gone by now; the key expires by itself.
    }
  }
}
