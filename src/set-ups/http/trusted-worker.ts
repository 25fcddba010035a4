/**
 * The client's address in a request of another Worker, sent through a service binding. Cloudflare's edge has not
 * handled that request, so it has no CF-Connecting-IP. The binding authenticates the Worker: only an account that may
 * deploy the gateway can set its `props`, and a request from the internet has none. So no secret is needed.
 */

/**
 * Clients cannot set this: it is read only if CF-Connecting-IP is missing and the binding belongs to a trusted
 * Worker.
 */
const CLIENT_ADDRESS = 'sluice-client-ip'

/**
 * Creates a function that reads the address that a trusted Worker reports.
 *
 * @param trusted names of the trusted Workers
 * @returns undefined for other callers, and if the Worker reports no address
 */
export function createClientAddressReader(
  trusted: readonly string[],
): (request: Request, env: unknown, platform: WithContext) => string | undefined {
  return ({ headers }, _, platform) => {
    const address = headers.get(CLIENT_ADDRESS)
    return address !== null && trusted.includes(workerIn(platform)) ? address : undefined
  }
}

/** The getter throws if the platform has no such context. */
export interface WithContext {
  readonly executionCtx: object
}

/** The Worker that the props name; empty if they name no Worker. */
function workerIn(platform: WithContext): string {
  try {
    const { caller } = (platform.executionCtx as { props: { caller?: unknown } }).props
    return typeof caller === 'string' ? caller : ''
  } catch {
    return ''
  }
}
