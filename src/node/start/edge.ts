/**
 * Makes replies readable for clients without Accept-Encoding. Cloudflare's edge and Miniflare both replace the header of a request with
 * codings that the edge can decode. For such a client, the edge then decodes the reply, and Miniflare does not. So this module asks for an
 * uncompressed reply, and decodes gzip if it gets a compressed one.
 */
const EDGE = `
import worker from './worker.mjs'
export * from './worker.mjs'

async function uncompressed(request, serve) {
  if (request.cf?.clientAcceptEncoding !== '') return serve(request)
  const plain = new Request(request)
  plain.headers.set('accept-encoding', 'identity')
  const response = await serve(plain)
  // Some origins compress every reply, whatever Accept-Encoding is.
  if (response.headers.get('content-encoding') !== 'gzip' || !response.body) return response
  const decoded = new Response(response.body.pipeThrough(new DecompressionStream('gzip')), response)
  decoded.headers.delete('content-encoding')
  decoded.headers.delete('content-length')
  return decoded
}

// A Worker is an object with handlers, or a class (WorkerEntrypoint).
export default typeof worker === 'function'
  ? class extends worker {
      fetch(request) {
        return uncompressed(request, request => super.fetch(request))
      }
    }
  : {
      ...worker,
      fetch: (request, env, ctx) => uncompressed(request, request => worker.fetch(request, env, ctx)),
    }
`

/** The modules of the Worker behind the edge, for Miniflare; the first one is the entry. */
export function wrapInEdge(script: string) {
  return [
    { type: 'ESModule' as const, path: 'edge.mjs', contents: EDGE },
    { type: 'ESModule' as const, path: 'worker.mjs', contents: script },
  ]
}
