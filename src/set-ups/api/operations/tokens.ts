/** What the OpenAPI document says about service tokens. */
import type { PartOperations } from '../reply-schemas.ts'
import { CREDENTIAL } from './shared.ts'

export const tokensOperations: PartOperations = {
  operations: {
    'GET tokens': 'listTokens TokenPage',
    'POST tokens': 'createToken CreatedToken',
    'GET tokens/{id}': 'showToken Token',
    'POST tokens/{id}/rotate': 'rotateToken RotatedToken',
    'DELETE tokens/{id}': 'revokeToken Revoked',
  },
  schemas: {
    ...{ ...CREDENTIAL },
    TokenPage: 'items: Token[], cursor?',
    Token: 'id, name, scopes: string[], createdAt: time, expiresAt?: time, by?, replacedBy?',
    CreatedToken: '...Token, token',
    RotatedToken: '...CreatedToken, replaces: Replaced',
  },
}
