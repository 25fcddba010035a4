/** What Cloudflare's edge knows of the connection that a request came by. */

/** Empty elsewhere, and in places on Cloudflare. */
export function cfOf(request: Request): Record<string, unknown> {
  return (request as { cf?: Record<string, unknown> }).cf ?? {}
}
