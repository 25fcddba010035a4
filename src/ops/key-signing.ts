/** Whether new keys must be signed. A Worker whose config does not have signatures does not carry it. */
import { KEY_SECRET } from '../credentials/key-signature.ts'
import { AdminError } from './admin-error.ts'
import type { AdminStore } from './admin-store-shape.ts'

/** @param signature of the config. @throws AdminError `refused` if the gateway would refuse the new key */
export function mustSignNewKeys(
  { keySigner }: Pick<AdminStore, 'keySigner'>,
  signature: string | undefined,
): void {
  if (signature !== 'require' || keySigner) return
  throw new AdminError(
    'refused',
    `The config requires signed keys (credentials.apiKeys.signature), so the new key must be signed. Set ${KEY_SECRET} to the secret of the deployment.`,
  )
}
