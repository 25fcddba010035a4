/** A Worker that makes calls to the store, and says what became of each. */
import { createScript } from '../../src/script/create-script.ts'
import { upstashStore } from '../../src/store/upstash.ts'

const NOTE = createScript("return redis.call('RPUSH', KEYS[1], ARGV[1])")

export default {
  /** The path: how many calls at once. The query: the deadline (ms). */
  async fetch(request: Request, env: { STORE: string }): Promise<Response> {
    const { pathname, searchParams } = new URL(request.url)
    const deadlineMs = Number(searchParams.get('deadline'))
    const store = upstashStore({ url: env.STORE, token: 'secret', deadlineMs, keyLocking: false })
    const calls = Array.from({ length: Number(pathname.slice(1)) }, (_, i) =>
      store.run([{ script: NOTE, keys: ['sluice:{notes}'], args: [String(i)] }]).then(
        ([reply]) => reply,
        ({ code, message, fate }) => ({ code, message, fate }),
      ),
    )
    return Response.json(await Promise.all(calls))
  },
}
