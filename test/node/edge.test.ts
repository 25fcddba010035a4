/** The local simulation of Cloudflare's edge, in front of Workers of every form. */
import { request } from 'node:http'
import { gunzipSync } from 'node:zlib'
import { convertV4MiniflareOptions, Log, LogLevel, Miniflare } from 'miniflare'
import { afterEach, expect, it } from 'vitest'
import { wrapInEdge } from '../../src/node/start/edge.ts'

let miniflare: Miniflare | undefined
afterEach(() => miniflare?.dispose())

const REPLY = `
  const reply = request => {
    const accepted = request.headers.get('accept-encoding')
    if (!new URL(request.url).pathname.startsWith('/gzip')) return new Response(accepted)
    const body = new Response(accepted).body.pipeThrough(new CompressionStream('gzip'))
    return new Response(body, { headers: { 'content-encoding': 'gzip', etag: 'kept' }, encodeBody: 'manual' })
  }
`
const FORMS = {
  'an object': `${REPLY} export default { fetch: reply }`,
  'an object with methods that use this': `${REPLY} export default { reply, fetch(request) { return this.reply(request) } }`,
  'a class': `${REPLY}
    import { WorkerEntrypoint } from 'cloudflare:workers'
    export default class extends WorkerEntrypoint {
      fetch(request) { return this.env.NAME === 'bound' ? reply(request) : new Response('no env') }
    }`,
}

it.each(Object.entries(FORMS))('sends only encodings that the client accepts, with %s', async (_, script) => {
  const options = {
    modules: wrapInEdge(script),
    compatibilityDate: '2026-10-01',
    bindings: { NAME: 'bound' },
    cf: false,
    log: new Log(LogLevel.NONE),
  } as const
  miniflare = new Miniflare(convertV4MiniflareOptions(options))
  const { href } = await miniflare.ready
  const get = (path: string, headers = {}) =>
    new Promise<{ encoding: string | undefined; etag: unknown; body: Buffer }>((resolve, reject) => {
      request(href + path, { headers }, response => {
        const chunks: Buffer[] = []
        response
          .on('data', chunk => chunks.push(chunk))
          .on('end', () => {
            const { 'content-encoding': encoding, etag } = response.headers
            resolve({ encoding, etag, body: Buffer.concat(chunks) })
          })
      })
        .on('error', reject)
        .end()
    })

  for (const headers of [{}, { 'accept-encoding': '' }]) {
    expect((await get('plain', headers)).body.toString()).toBe('identity')
    const { encoding, etag, body } = await get('gzip', headers)
    expect([encoding, etag, body.toString()]).toEqual([undefined, 'kept', 'identity'])
  }
  const { encoding, body } = await get('gzip', { 'accept-encoding': 'gzip' })
  expect([encoding, gunzipSync(body).toString()]).toEqual(['gzip', 'br, gzip'])
})
