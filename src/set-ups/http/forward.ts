/** Forwards an admitted request: to an origin, or to the user's code. */
import type { Allowed } from '../../limiter/decision.ts'
import type { Ending } from '../../limiter/engine-shape.ts'
import type { BodyTap, ReplyHead } from '../../usage/usage.ts'
import type { Caller } from './caller.ts'
import type { Pump } from './pass-body.ts'
import type { ErrorShape } from './problem.ts'

/**
 * The caller and the decision, for the headers that the origin gets. A CORS preflight has no caller; then the origin
 * gets only the address.
 */
export interface ForwardContext {
  caller?: Caller
  /** The client's address, for a request without a caller; absent if unknown. */
  address?: string
  decision?: Allowed
  requestId: string
  /** The name of the route, if one matches. */
  route?: string | undefined
  /** The parsed URL of the request, if it was parsed before. */
  url?: URL
  /** The request, if its body was read for an estimate. */
  copy?: Request
  /** Is aborted when the client breaks off the rest of that body, which the platform would then end as if it was complete. */
  bodyFailed?: AbortSignal | undefined
  /** The shape of replies that the gateway makes instead of the origin. */
  errorShape?: ErrorShape | undefined
  /** Changes how the gateway sends the request to the origin. */
  adapt?: (settings: RequestInit) => void
}

/** Reads a reply that a framework sends itself. */
export interface ReplyReader extends Pick<BodyTap, 'see'> {
  /** Removes headers that the client must not get. */
  cleanHeaders(headers: { delete(name: string): void }): void
}

export interface Forwarded {
  response: Response
  /** The gateway made the response, not the origin. */
  isFromSluice: boolean
  /** The origin did not get the request, because no connection to it was made. */
  isUnsent?: boolean
  /** The platform may have decoded the body, so Content-Length is not the length of what passes through a stream. */
  isDecoded?: boolean
  /** Resolves when the request ends, if a framework sends the reply itself. Absent: the end of the response is the end of the request. */
  ended?: Promise<Ending>
  /** With `ended`: what the framework has sent. `isLarge`: the time until the end depends on how fast the client reads. */
  sent?: () => { response: Response; isLarge: boolean }
  /** Whether something depends on how and when the reply ends. Absent: as decided. */
  awaitsEnding?: boolean
  /** Reads the body on its way, if something needs its end. Absent: the body is passed on as it is. */
  pump?: Pump | undefined
  /**
   * With `ended`: calls `begin` before the framework sends the head of its reply, and what it returns for each chunk of the body. An
   * exception of either is given to `onError`.
   */
  observe?: (begin: (head: ReplyHead) => ReplyReader, onError: (error: unknown) => void) => void
}

/** Replies to a client that has left. Only logs of the platform show its status, which is that of nginx. */
export function replyToGoneClient(): Forwarded {
  return { response: new Response(null, { status: 499 }), isFromSluice: true }
}

/** Answers an admitted request. An exception is rethrown after the request was finished as failed. */
export type Forward = (request: Request, context: ForwardContext) => Promise<Forwarded>
