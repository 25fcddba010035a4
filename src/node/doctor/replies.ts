/** Requests to a gateway, and what its replies say: problem bodies, and the fields RateLimit and RateLimit-Policy. */
import { parseList } from '../../client/list.ts'

/** `body` is empty if it is not JSON, or large; `sentAt` in ms since the epoch; `ms`: how long the answer took. */
export type Reply = Pick<Response, 'status' | 'headers'> &
  Record<'sentAt' | 'ms', number> & { body: Readonly<Record<string, unknown>> }

type RequestHeaders = Readonly<Record<string, string>>

export type AskCounted = (headers?: RequestHeaders) => Promise<Reply>

const TIMEOUT_MS = 10_000
/** Bytes, and ms after the head. Replies of the gateway itself are shorter. */
const [MAX_BODY, MAX_BODY_MS] = [100_000, 1_000]

export async function ask(url: string, headers: RequestHeaders = {}): Promise<Reply> {
  const sentAt = Date.now()
  const response = await fetch(url, { headers, redirect: 'manual', signal: AbortSignal.timeout(TIMEOUT_MS) })
  const body = await objectIn(response).catch(() => ({}))
  return { status: response.status, headers: response.headers, body, sentAt, ms: Date.now() - sentAt }
}

/** The body of an origin may be large or have no end, so only JSON is read, and not much of it. */
async function objectIn({ body, headers }: Response): Promise<Reply['body']> {
  const isJson = /^$|json/.test(headers.get('content-type') ?? '')
  let text = ''
  const signal = AbortSignal.timeout(MAX_BODY_MS)
  // Leaving the loop cancels the rest.
  for await (const part of body?.pipeThrough(new TextDecoderStream(), { signal }) ?? []) {
    text += part
    if (!isJson || text.length > MAX_BODY) return {}
  }
  return Object(JSON.parse(text))
}

/** Whether a reply of the gateway itself is a problem as it is documented. */
export function isProblem({ status, headers, body }: Reply): boolean {
  const hasTexts = ['type', 'title', 'detail'].every(name => typeof body[name] === 'string')
  return headers.get('content-type') === 'application/problem+json' && body.status === status && hasTexts
}

/**
 * The limits of a reply: units that can be spent at once, and that are left; until it is whole, and its window (s; none for a calendar).
 * @returns none if RateLimit or RateLimit-Policy is not valid
 */
export function limitsOf({ headers }: Reply) {
  const itemsOf = (field: string) => parseList(headers.get(field) ?? '')
  const policies = new Map(itemsOf('ratelimit-policy').map(({ name, parameters }) => [name, parameters]))
  const states = itemsOf('ratelimit')
  const limits = states.flatMap(({ name, parameters: state }) => {
    const policy = policies.get(name)
    const [q, r, t, w] = [policy?.get('q'), state.get('r'), state.get('t'), policy?.get('w')]
    if (!policy || ![q, r, t, w ?? 1].every(Number.isSafeInteger)) return []
    const most = Number(policy.get('sluice-burst') ?? q)
    const seconds = w === undefined ? undefined : Number(w)
    return { name, most, remaining: Number(r), reset: Number(t), seconds, isOfRequests: !policy.has('qu') }
  })
  return limits.length === states.length ? limits : []
}
