/** Where an admitted request goes: to an origin, or to the user's code. */
import type { Allowed } from '../../limiter/decision.ts'
import type { Caller } from './caller.ts'

/** The caller and the decision that the origin learns about. Without a caller (a CORS preflight) it learns only the address. */
export interface ForwardContext {
  caller?: Caller
  /** Of the client, for a request without a caller; absent where it is not known. */
  address?: string
  decision?: Allowed
  requestId: string
  /** The name of its route, where it has one. */
  route?: string | undefined
  /** That of the request, where it is parsed already. */
  url?: URL
}

export interface Forwarded {
  response: Response
  /** Made by the gateway, not by the origin. */
  isOwn: boolean
  /** The platform may have decoded its body: Content-Length is then not the length of what passes through a stream. */
  isDecoded?: boolean
}

/** Answers an admitted request. An exception is thrown on after the request has been finished as failed. */
export type Forward = (request: Request, context: ForwardContext) => Promise<Forwarded>
