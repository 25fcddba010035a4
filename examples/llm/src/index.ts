/**
 * A gateway in front of an API of language models. Teams call it with their Sluice key, as if it was the API: base URL
 * `https://<this Worker>/v1`. Only the Worker has the key of the API.
 */
import { gateway } from 'sluicegate/worker'
import config from '../sluice.config.ts'

const worker = gateway(config)

/** What teams can use. Elsewhere, the API gets no key and refuses: with the key, a team could delete models and read the files of others. */
const PATHS = new Set(['/v1/chat/completions', '/v1/responses', '/v1/embeddings', '/v1/models'])

type Env = Parameters<typeof worker.fetch>[1] & { PROVIDER_API_KEY: string }

export default {
  fetch(request: Request, env: Env, context: ExecutionContext) {
    const headers = new Headers(request.headers)
    // Sluice reads the key of the team here, and removes it. The header Authorization goes on to the API.
    const teamKey = /^Bearer (.+)$/i.exec(headers.get('authorization') ?? '')?.[1]
    if (teamKey) headers.set('x-api-key', teamKey)
    headers.delete('authorization')
    if (PATHS.has(new URL(request.url).pathname))
      headers.set('authorization', `Bearer ${env.PROVIDER_API_KEY}`)
    return worker.fetch(new Request(request, { headers }), env, context)
  },
}
