/** A request with another body: what was read of it, and what is still to come. */

/** Of Workers: a stream that is sent with Content-Length. */
declare const FixedLengthStream: (new (length: number) => TransformStream) | undefined

/** Content-Length, or 0 if it is not known. */
export function lengthOf({ headers }: Request): number {
  const length = headers.get('content-length')
  return length !== null && /^[0-9]{1,15}$/.test(length) ? Number(length) : 0
}

/** The request with this body. Some origins refuse a body in chunks, without Content-Length. */
export function withBody(
  request: Request,
  body: Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array>,
  length = 0,
): Request {
  const headers = new Headers(request.headers)
  const bytes = body instanceof Uint8Array ? body.byteLength : length
  if (headers.has('content-length')) headers.set('content-length', String(bytes))
  const sent = body instanceof Uint8Array || length === 0 ? body : withLength(body, length)
  return new Request(request, { body: sent, headers, duplex: 'half' } as RequestInit)
}

function withLength(body: ReadableStream<Uint8Array>, length: number): ReadableStream<Uint8Array> {
  if (typeof FixedLengthStream === 'undefined') return body
  const { readable, writable } = new FixedLengthStream(length)
  // A body that fails breaks off the request.
  body.pipeTo(writable).catch(() => {})
  return readable
}
