/** Cloudflare's data about the connection of a request. */

/** `request.cf`. Empty on other platforms, and if Cloudflare does not provide it. */
export function cfOf(request: Request): Record<string, unknown> {
  return (request as { cf?: Record<string, unknown> }).cf ?? {}
}
