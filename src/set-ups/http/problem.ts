/** Replies that the gateway makes itself, as problem details (RFC 9457), or in the shape of another API. */

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

/** Makes the body of a reply. */
export type ErrorShape = (problem: Problem) => object

const problemDetails: ErrorShape = ({ status, title, detail, type, extra }) => ({
  ...{ type: type ?? 'about:blank', title, status, detail },
  ...extra,
})

/** @param shape default: problem details */
export function problem(problem: Problem, shape?: ErrorShape): Response {
  const { status, headers } = problem
  const type = shape ? 'application/json' : 'application/problem+json'
  return new Response(JSON.stringify((shape ?? problemDetails)(problem)) + '\n', {
    status,
    headers: { 'content-type': type, 'cache-control': 'no-store', ...headers },
  })
}
