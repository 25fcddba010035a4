/** Requests to a gateway, and what its replies say: problem bodies, and the fields RateLimit and RateLimit-Policy. */
import { type Item, parseList } from 'structured-headers'

/** `body` is empty if it is not JSON; `sentAt` in ms since the epoch; `ms`: how long the answer took. */
export type Reply = Pick<Response, 'status' | 'headers'> & Record<'sentAt' | 'ms', number> & { body: Body }
type Body = Readonly<Record<string, unknown>>

type RequestHeaders = Readonly<Record<string, string>>

export type AskCounted = (headers?: RequestHeaders) => Promise<Reply>

const TIMEOUT_MS = 10_000

export async function ask(url: string, headers: RequestHeaders = {}): Promise<Reply> {
  const sentAt = Date.now()
  const response = await fetch(url, { headers, redirect: 'manual', signal: AbortSignal.timeout(TIMEOUT_MS) })
  const body = Object(await response.json().catch(() => ({})))
  return { status: response.status, headers: response.headers, body, sentAt, ms: Date.now() - sentAt }
}

/** Whether a reply of the gateway itself is a problem as it is documented. */
export function isProblem({ status, headers, body }: Reply): boolean {
  const hasTexts = ['type', 'title', 'detail'].every(name => typeof body[name] === 'string')
  return headers.get('content-type') === 'application/problem+json' && body.status === status && hasTexts
}

/**
 * The limits of a reply: units that can be spent at once, and that are left; until it is whole, and its window (s; none for a calendar).
 * @returns undefined if RateLimit or RateLimit-Policy is not valid
 */
export function limitsOf({ headers }: Reply) {
  try {
    const policies = itemsOf(headers.get('ratelimit-policy'))
    return [...itemsOf(headers.get('ratelimit'))].map(([name, state]) => {
      const policy = policies.get(name)
      const [q, r, t, w] = [policy?.get('q'), state.get('r'), state.get('t'), policy?.get('w')]
      if (!policy || ![q, r, t, w ?? 1].every(Number.isSafeInteger)) throw new SyntaxError()
      const most = Number(policy.get('sluice-burst') ?? q)
      const seconds = w === undefined ? undefined : Number(w)
      return { name, most, remaining: Number(r), reset: Number(t), seconds, isOfRequests: !policy.has('qu') }
    })
  } catch {
    return undefined
  }
}

function itemsOf(field: string | null): ReadonlyMap<string, Item[1]> {
  const items = parseList(field ?? '') as Item[]
  if (items.some(([name]) => typeof name !== 'string')) throw new SyntaxError()
  return new Map(items as [string, Item[1]][])
}
