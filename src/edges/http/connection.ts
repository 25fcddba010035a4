/** What Cloudflare's edge knows about the connection of a request. */

/** Empty on other platforms, and where Cloudflare does not provide it. */
export function cfOf(request: Request): Record<string, unknown> {
  return (request as { cf?: Record<string, unknown> }).cf ?? {}
}
