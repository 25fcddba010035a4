/** Signs the API keys that the API creates. A Worker without `credentials.apiKeys.signature` does not carry it. */
import { KEY_SECRET, mintSignedKey, readKeySecrets } from '../../credentials/key-signature.ts'
import type { AdminStore, KeySpace } from '../../ops/admin-store-shape.ts'
import { mustSignNewKeys } from '../../ops/key-signing.ts'

export interface KeySigning {
  /** What signs new keys: the first secret. */
  keySpace: Pick<KeySpace, 'keySecret' | 'mintSignedKey'>
  /** @throws AdminError if the gateway would refuse a new key */
  mustSign(store: AdminStore): void
}

/** @param signature of the config */
export function createKeySigning(
  signature: string,
  variables: Readonly<Record<string, unknown>>,
): KeySigning {
  const secrets = variables[KEY_SECRET]
  const keySecret = secrets ? readKeySecrets(secrets)[0] : undefined
  return {
    keySpace: { keySecret, mintSignedKey },
    mustSign: store => mustSignNewKeys(store, signature),
  }
}
