/** Administration of keys. An id is that of `list`; the key itself works as well. */
import type { AdminContext } from '../context.ts'
import {
  type CreatedKeyDocument,
  createdKeyDocument,
  type KeyDocument,
  type KeyStatsDocument,
  keyDocument,
  keyExpiryDocument,
  keyLabelDocument,
  keyPlanDocument,
  keyStatsDocument,
  type RotatedKeyDocument,
  revokedKeyDocument,
  rotatedKeyDocument,
} from '../documents/keys.ts'
import {
  checkFields,
  NEW_KEY_FIELDS,
  type NewKeyInput,
  parseNewKey,
  parseOpaqueKey,
  parseOverlap,
  type TimeInput,
  textOf,
} from '../inputs.ts'
import { expireKey, revokeKey, rotateKey, setKeyLabel, setKeyPlan, showKey } from '../key-changes.ts'
import { findKey } from '../key-reference.ts'
import { mustSignNewKeys } from '../key-signing.ts'
import { createKey, importKey, keyStatsOf, listKeys, type OpaqueKey } from '../keys.ts'
import { parseConsumerName, parsePlan, parseShortText, parseTime } from '../names.ts'

export type KeyAdmin = ReturnType<typeof administerKeys>

export function administerKeys({ store, config }: Pick<AdminContext, 'store' | 'config'>) {
  const mustSign = () => mustSignNewKeys(store, config.credentials.signature)
  return {
    /** Creates an API key. Only this document has its secret. */
    async create(input: NewKeyInput): Promise<CreatedKeyDocument> {
      checkFields('keys.create', input, NEW_KEY_FIELDS)
      mustSign()
      return createdKeyDocument(await createKey(store, await parseNewKey(input, config.plans)))
    },

    /** Imports a key that was made elsewhere. Requests with it need `credentials.opaqueKeys` in the config. */
    async import(key: OpaqueKey, input: NewKeyInput): Promise<KeyDocument> {
      checkFields('keys.import', input, NEW_KEY_FIELDS)
      return keyDocument(await importKey(store, parseOpaqueKey(key), await parseNewKey(input, config.plans)))
    },

    /** Lists the keys of a consumer. Default: of all. */
    async list(consumer?: string): Promise<KeyDocument[]> {
      const name = consumer === undefined ? undefined : await parseConsumerName(consumer)
      return (await listKeys(store, name)).map(keyDocument)
    },

    async show(id: string): Promise<KeyDocument> {
      return keyDocument(await showKey(store, await findKey(store, id)))
    },

    /** Counts the keys by the secret that has signed them. */
    async stats(): Promise<KeyStatsDocument> {
      return keyStatsDocument(keyStatsOf(await listKeys(store)))
    },

    /** @param label null removes it */
    async setLabel(id: string, label: string | null) {
      const text = label === null ? undefined : parseShortText(label, 'label')
      const key = await findKey(store, id)
      await setKeyLabel(store, key, text)
      return keyLabelDocument(key.id, text)
    },

    /** @param plan null: the plan of the consumer applies */
    async setPlan(id: string, plan: string | null) {
      const name = plan === null ? undefined : parsePlan(plan, config.plans)
      const key = await findKey(store, id)
      await setKeyPlan(store, key, name)
      return keyPlanDocument(key.id, name)
    },

    /** @param at `never` undoes a rotation; a time that has passed revokes the key */
    async expire(id: string, at: TimeInput) {
      const time = parseTime(textOf(at))
      const key = await findKey(store, id)
      await expireKey(store, key, time)
      return keyExpiryDocument(key.id, time)
    },

    async revoke(id: string) {
      const key = await findKey(store, id)
      await revokeKey(store, key)
      return revokedKeyDocument(key.id)
    },

    /**
     * Replaces a key by a new one with the same settings.
     * @param overlap how long the old key stays valid, such as `24h`; `0` revokes it
     */
    async rotate(id: string, overlap = '24h'): Promise<RotatedKeyDocument> {
      const overlapMs = parseOverlap(overlap, 'overlap')
      mustSign()
      const key = await findKey(store, id)
      return rotatedKeyDocument(key.id, await rotateKey(store, key, overlapMs))
    },
  }
}
