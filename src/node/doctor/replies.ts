/** Requests to a gateway, and what its replies say: problem bodies, and the fields RateLimit and RateLimit-Policy. */
import { type Item, parseList } from 'structured-headers'

export interface Reply {
  status: number
  headers: Headers
  body: string
  /** When it was asked for (ms since the epoch), and how long the answer took (ms). */
  sentAt: number
  ms: number
}

type RequestHeaders = Readonly<Record<string, string>>

/** Sends a request that is counted. */
export type AskCounted = (headers?: RequestHeaders) => Promise<Reply>

const TIMEOUT_MS = 10_000

export async function ask(url: string, headers: RequestHeaders = {}): Promise<Reply> {
  const sentAt = Date.now()
  const response = await fetch(url, { headers, redirect: 'manual', signal: AbortSignal.timeout(TIMEOUT_MS) })
  const body = await response.text()
  return { status: response.status, headers: response.headers, body, sentAt, ms: Date.now() - sentAt }
}

/** Empty if the text is not JSON. */
export function jsonOf(text: string): Record<string, unknown> {
  try {
    return Object(JSON.parse(text))
  } catch {
    return {}
  }
}

/** Whether a reply of the gateway itself is a problem as it is documented. */
export function isProblem({ status, headers, body }: Reply): boolean {
  const problem = jsonOf(body)
  const isText = (name: string) => typeof problem[name] === 'string'
  const type = headers.get('content-type')
  return (
    type === 'application/problem+json' &&
    problem.status === status &&
    ['type', 'title', 'detail'].every(isText)
  )
}

/** A limit of a reply: units that can be spent at once, and that are left; until it is whole, and its window (s; none for a calendar). */
export interface ShownLimit extends Readonly<Record<'most' | 'remaining' | 'reset', number>> {
  name: string
  seconds: number | undefined
  isOfRequests: boolean
}

/** Waits (s) where a limit is tried: until it is whole again, for example. */
export const MAX_WAIT = 10

/** @returns undefined if RateLimit or RateLimit-Policy is not valid */
export function limitsOf({ headers }: Reply): ShownLimit[] | undefined {
  try {
    const policies = itemsOf(headers.get('ratelimit-policy'))
    return [...itemsOf(headers.get('ratelimit'))].map(([name, state]) => {
      const policy = policies.get(name)
      const [q, r, t, w] = [policy?.get('q'), state.get('r'), state.get('t'), policy?.get('w')]
      if (!policy || ![q, r, t, w ?? 1].every(Number.isSafeInteger)) throw new SyntaxError()
      const most = Number(policy.get('sluice-burst') ?? q)
      const numbers = {
        most,
        remaining: Number(r),
        reset: Number(t),
        seconds: w === undefined ? w : Number(w),
      }
      return { name, ...numbers, isOfRequests: !policy.has('qu') }
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
