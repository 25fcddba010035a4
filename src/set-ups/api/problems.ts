/** The problems that the API replies with (RFC 9457): one table, from which the types, the docs and the OpenAPI document are made. */
import { type Problem, problem } from '../http/problem.ts'

export const PROBLEMS = {
  'invalid-input': { status: 400, title: 'Invalid input' },
  unauthenticated: { status: 401, title: 'Unauthenticated' },
  forbidden: { status: 403, title: 'Scope missing' },
  blocked: { status: 403, title: 'Blocked' },
  'not-found': { status: 404, title: 'Not found' },
  'method-not-allowed': { status: 405, title: 'Method not allowed' },
  repeated: { status: 409, title: 'Idempotency-Key used before' },
  conflict: { status: 409, title: 'Another change at the same time' },
  'too-large': { status: 413, title: 'Body too large' },
  'not-json': { status: 415, title: 'Body is not plain JSON' },
  refused: { status: 422, title: 'Refused by the stored data' },
  'too-many-guesses': { status: 429, title: 'Too many invalid credentials' },
  'too-often': { status: 429, title: 'Asked too often' },
  internal: { status: 500, title: 'Internal error' },
  'store-unavailable': { status: 503, title: 'Store unavailable' },
  'issuer-unavailable': { status: 503, title: 'Issuer unavailable' },
} as const satisfies Record<string, { status: number; title: string }>

export type ProblemName = keyof typeof PROBLEMS

/** A URN, because a URL would promise a page that outlives every domain. */
export const problemType = (name: ProblemName) => `urn:sluice:problem:${name}`

/** A wrong value in the request. */
export interface InputMistake {
  /** JSON Pointer (RFC 6901) into the body, or the name of a parameter: `/expiresAt`, `?limit`. */
  pointer: string
  detail: string
}

/** Whether a change was made before an error. `unknown`: it was sent, and the store has not confirmed it. */
export type ChangeState = 'none' | 'unknown'

interface Details {
  headers?: Record<string, string> | undefined
  /** Extension members. */
  extra?: Extra | undefined
}

interface Extra extends NonNullable<Problem['extra']> {
  errors?: readonly InputMistake[]
  scope?: string
  id?: string
  change?: ChangeState
  /** Of a refusal of the gateway. */
  'violated-policies'?: readonly string[]
}

/** Ends a request with a problem. The detail says what is wrong and what to do. It never has a secret. */
export class ApiError extends Error {
  override readonly name = 'ApiError'
  readonly problem: ProblemName
  readonly details: Details

  constructor(problem: ProblemName, detail: string, details: Details = {}) {
    super(detail)
    this.problem = problem
    this.details = details
  }
}

/** @param pointer of the wrong value */
export const invalidInput = (pointer: string, detail: string): ApiError =>
  new ApiError('invalid-input', 'The request has a mistake.', { extra: { errors: [{ pointer, detail }] } })

/** What the gateway replies to a refused request, as a problem of the API. */
export const asApiError = (name: ProblemName, { detail, ...details }: Problem): ApiError =>
  new ApiError(name, detail, details)

export function replyToProblem({ problem: name, message, details }: ApiError, requestId: string): Response {
  const { headers, extra } = details
  return problem({
    ...PROBLEMS[name],
    type: problemType(name),
    detail: message,
    extra: { requestId, ...extra },
    headers: { 'x-request-id': requestId, ...headers },
  } satisfies Problem)
}
