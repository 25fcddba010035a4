/** A Worker that calls the rate limiting binding `calls` times, one after the other, and replies with the number of allowed calls. */
interface Environment {
  LIMIT: { limit(options: { key: string }): Promise<{ success: boolean }> }
}

export default {
  async fetch(request: Request, env: Environment): Promise<Response> {
    const calls = Number(new URL(request.url).searchParams.get('calls'))
    let allowed = 0
    for (let i = 0; i < calls; i++) if ((await env.LIMIT.limit({ key: 'caller' })).success) allowed += 1
    return new Response(String(allowed))
  },
}
