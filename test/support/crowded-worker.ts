/** A guard in workerd with one HTTP request to the store at a time, so that all other requests wait for their turn. */
import { guard } from '../../src/set-ups/guard/index.ts'

interface Environment {
  UPSTASH_REDIS_REST_URL: string
  UPSTASH_REDIS_REST_TOKEN: string
}

const config = {
  credentials: { accept: ['anonymous' as const] },
  store: { maxInFlight: 1, deadline: '20s' as const },
  rules: [
    {
      ...{
        name: 'day',
        by: 'global' as const,
        algorithm: 'fixed-window' as const,
        limit: 1000,
        period: '300d' as const,
      },
      onStoreFailure: 'closed' as const,
    },
  ],
}

export default { fetch: guard(config)((_request: Request, _env: Environment) => new Response('served')) }
