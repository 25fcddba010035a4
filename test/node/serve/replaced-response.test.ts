import { execFileSync } from 'node:child_process'
import { expect, it } from 'vitest'

const PROGRAM = `
import { once } from 'node:events'
import { createServer, get } from 'node:http'
import { getRequestListener } from '@hono/node-server'
getRequestListener(() => new Response())
const { createListeners } = await import('./src/node/serve/listener.ts')
const { connectToOrigin } = await import('./src/node/serve/origin-fetch.ts')

const listen = server => new Promise(resolve => server.listen(0, '127.0.0.1', () => resolve(server.address().port)))
let finish
const origin = createServer((_, reply) => {
  reply.write('from the ')
  finish = () => reply.end('origin')
})
const originPort = await listen(origin)
const { fetchOrigin } = connectToOrigin({ connectTimeoutMs: 30_000, reuse: 'kept' })
const app = { fetch: request => fetchOrigin('http://127.0.0.1:' + originPort + '/', request, { headers: new Headers() }) }
const options = { address: { trustedProxies: [] }, waitUntil() {}, isStopping: () => false, replacesGlobals: true }
const port = await listen(createServer(createListeners({ app }, options).request))
const [reply] = await once(get({ port, host: '127.0.0.1' }), 'response')
const [first] = await once(reply, 'data')
finish()
const rest = []
reply.on('data', chunk => rest.push(chunk)).on('error', () => {})
await once(reply, 'close')
console.log(String(first) + rest.join(''))
process.exit()
`

it('a reply of the origin arrives whole in a process in which @hono/node-server replaced Response before serve was loaded', () => {
  const output = execFileSync(process.execPath, ['--input-type=module', '--eval', PROGRAM], {
    encoding: 'utf8',
  })
  expect(output).toBe('from the origin\n')
})
