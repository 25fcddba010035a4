/** What the OpenAPI document says about service tokens. */
import type { PartOperations } from '../reply-schemas.ts'
import { CREDENTIAL, PAGE, REMOVED } from './shared.ts'

export const tokensOperations: PartOperations = {
  operations: {
    'GET tokens': ['listTokens', 'TokenPage', 'List service tokens'],
    'POST tokens': ['createToken', 'CreatedToken', 'Create a service token'],
    'GET tokens/{id}': ['showToken', 'Token', 'Show a service token'],
    'POST tokens/{id}/rotate': ['rotateToken', 'RotatedToken', 'Replace a service token by a new one'],
    'DELETE tokens/{id}': ['revokeToken', 'Revoked', 'Revoke a service token', REMOVED],
  },
  schemas: {
    ...{ ...PAGE, ...CREDENTIAL },
    TokenPage: 'items: Token[], ...Page',
    Token: 'id, name, scopes: string[], createdAt: time, expiresAt?: time, by?, replacedBy?',
    CreatedToken: '...Token, token "The token itself. It cannot be shown again."',
    RotatedToken: '...CreatedToken, replaces: Replaced',
  },
}
