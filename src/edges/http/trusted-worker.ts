/**
 * The client's address in a request that another Worker has made, and sends through a service binding: Cloudflare's edge has not seen it,
 * so it has no CF-Connecting-IP. The binding vouches for the Worker: its `props` can only be set by an account that may deploy the
 * gateway, and a request from the internet has none. So no secret is needed.
 */

/** No client can choose it: it is read only where CF-Connecting-IP is missing and the binding is one of a trusted Worker. */
const CLIENT_ADDRESS = 'sluice-client-ip'

/**
 * @param trusted names of the Workers whose word is taken
 * @returns what such a Worker says; undefined where it says nothing, and for all others
 */
export function clientOfWorker(
  trusted: readonly string[],
): (request: Request, env: unknown, platform: WithContext) => string | undefined {
  return ({ headers }, _, platform) => {
    const address = headers.get(CLIENT_ADDRESS)
    return address !== null && trusted.includes(callerIn(platform)) ? address : undefined
  }
}

/** Throws where the platform has no such thing. */
export interface WithContext {
  readonly executionCtx: object
}

/** An empty text names no Worker. */
function callerIn(platform: WithContext): string {
  try {
    const { caller } = (platform.executionCtx as { props: { caller?: unknown } }).props
    return typeof caller === 'string' ? caller : ''
  } catch {
    return ''
  }
}
