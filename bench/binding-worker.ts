/** Asks the rate limiting binding of Workers as often as the query says, in turn, and answers how many calls it has allowed. */
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
