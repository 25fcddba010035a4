/** The API for web pages of other origins. A Worker without `api.cors` does not carry it. */
import type { Cors } from '../../config/compile.ts'
import { answerPreflight, setAllowedOrigin } from '../http/cors.ts'
import type { HandleApiRequest } from './route.ts'

export const withApiCors =
  (handle: HandleApiRequest, cors: Cors): HandleApiRequest =>
  async incoming => {
    const { request, refusal } = incoming
    if (request.method === 'OPTIONS' && !refusal) return answerPreflight(request, cors)
    const response = await handle(incoming)
    setAllowedOrigin(request, response.headers, cors)
    response.headers.set('access-control-expose-headers', 'x-request-id, retry-after')
    return response
  }
