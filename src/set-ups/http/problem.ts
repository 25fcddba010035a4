/** Replies that the gateway makes itself, as problem details (RFC 9457). */

export interface Problem {
  status: number
  title: string
  /** One or two sentences that say what the caller can do. */
  detail: string
  /** A URI for the kind of problem. Absent: the status says it all. */
  type?: string
  /** Extension members of the object. */
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
