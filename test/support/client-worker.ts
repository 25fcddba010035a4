/** A Worker whose requests call an API with the client of `sluicegate/client`. */
import { createClient } from '../../src/client/index.ts'

const limited = createClient({ maxWaitMs: 20_000 })

export default {
  async fetch(request: Request, env: { API: string }): Promise<Response> {
    try {
      const reply = await limited(env.API + new URL(request.url).pathname)
      return new Response(await reply.text(), { status: reply.status })
    } catch (error) {
      return new Response(String(error), { status: 500 })
    }
  },
}
