/** Signs the API keys that the API creates. A Worker without `credentials.apiKeys.signature` does not carry it. */
import type { Config } from '../../config/compile.ts'
import {
  createKeySigner,
  KEY_SECRET,
  type KeySigner,
  readKeySecrets,
} from '../../credentials/key-signature.ts'
import type { AdminStore } from '../../ops/admin-store-shape.ts'
import { mustSignNewKeys } from '../../ops/key-signing.ts'

export interface KeySigning {
  /** What signs new keys: the first secret. */
  signer: KeySigner | undefined
  /** @throws AdminError if the gateway would refuse a new key */
  mustSign(store: AdminStore): void
}

export function createKeySigning(
  { environment, credentials: { signature } }: Pick<Config, 'environment' | 'credentials'>,
  variables: Readonly<Record<string, unknown>>,
): KeySigning {
  const secrets = variables[KEY_SECRET]
  const [secret] = secrets ? readKeySecrets(secrets) : []
  return {
    signer: secret && createKeySigner(secret, environment),
    mustSign: store => mustSignNewKeys(store, signature),
  }
}
