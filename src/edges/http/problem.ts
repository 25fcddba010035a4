/** Replies of the gateway itself, as problem details (RFC 9457). */

export interface Problem {
  status: number
  title: string
  /** One sentence a human can act on. */
  detail: string
  /** A URI for the kind of problem; absent: no more than the status says. */
  type?: string
  /** Extension members. */
  extra?: Record<string, unknown>
  headers?: Record<string, string>
}

export function problem({ status, title, detail, type, extra, headers }: Problem): Response {
  const body = { type: type ?? 'about:blank', title, status, detail, ...extra }
  return new Response(JSON.stringify(body) + '\n', {
    status,
    headers: { 'content-type': 'application/problem+json', 'cache-control': 'no-store', ...headers },
  })
}
