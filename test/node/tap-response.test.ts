/** Usage of the responses of apps on Node. */
import { createServer, type ServerResponse } from 'node:http'
import { connect, createServer as createHttp2Server } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { Readable } from 'node:stream'
import { gzipSync } from 'node:zlib'
import { afterEach, describe, expect, it } from 'vitest'
import { tapResponse } from '../../src/node/tap-response.ts'
import type { UsageReport } from '../../src/usage/usage.ts'
import { createUsageReader } from '../../src/usage/usage-reader.ts'

let close = async () => {}
afterEach(() => close())

const SOURCES = { tokens: { usage: 'openai' }, ms: { header: 'x-ms' } } as const
const BODY = JSON.stringify({ text: 'é'.repeat(50), usage: { prompt_tokens: 5, completion_tokens: 2 } })

async function serve(
  app: (res: ServerResponse) => void,
  onError: (error: unknown) => void = error => expect.fail(String(error)),
  begin: typeof createUsageReader = createUsageReader,
) {
  let report: Promise<UsageReport> | undefined
  const server = createServer((_, res) => {
    let reader: ReturnType<typeof createUsageReader> | undefined
    tapResponse(
      res,
      head => {
        reader = begin(SOURCES, head)
        return reader
      },
      onError,
    )
    report = new Promise(resolve => {
      res.once('close', () => resolve(reader?.end(res.writableFinished ? 'complete' : 'cancelled') as never))
    })
    app(res)
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  close = () =>
    new Promise(resolve => {
      server.close(() => resolve())
      server.closeAllConnections()
    })
  const response = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`)
  const text = await response.text().catch(() => 'broken off')
  return { response, text, report: await report }
}

describe('the usage of a response of Node', () => {
  const headers = { 'content-type': 'application/json', 'x-ms': '7' }
  const setHeaders = (res: ServerResponse) => {
    for (const [name, value] of Object.entries(headers)) res.setHeader(name, value)
  }

  it.each<[string, (res: ServerResponse) => void]>([
    [
      'end',
      res => {
        setHeaders(res)
        res.end(BODY)
      },
    ],
    [
      'writeHead with headers, and write',
      res => {
        res.writeHead(200, headers).write(BODY.slice(0, 30), 'utf8')
        res.end(Buffer.from(BODY.slice(30)))
      },
    ],
    [
      'writeHead with a message and a list',
      res => {
        res.writeHead(200, 'Fine', [
          'Content-Type',
          'application/json',
          'X-MS',
          '7',
          'x-list',
          'a',
          'x-list',
          'b',
        ])
        res.end(BODY)
      },
    ],
    [
      'flushHeaders',
      res => {
        setHeaders(res)
        res.flushHeaders()
        setImmediate(() => res.end(BODY))
      },
    ],
    [
      'a pipe',
      res => {
        setHeaders(res)
        Readable.from([BODY.slice(0, 9), BODY.slice(9)].map(text => Buffer.from(text))).pipe(res)
      },
    ],
    [
      'gzip',
      res => {
        setHeaders(res)
        res.setHeader('content-encoding', 'gzip')
        res.end(gzipSync(BODY))
      },
    ],
  ])('is read if the app uses %s', async (_, app) => {
    const { response, text, report } = await serve(app)
    expect([response.status, text, response.headers.get('x-ms')]).toEqual([200, BODY, null])
    expect(response.headers.get('content-type')).toBe('application/json')
    expect(report).toMatchObject({ amounts: { tokens: 7, ms: 7 }, ending: 'complete', problems: [] })
  })

  it('is read once over HTTP/2, where the methods of a response call each other', async () => {
    const seen: string[] = []
    const server = createHttp2Server((_, res) => {
      tapResponse(
        res as unknown as ServerResponse,
        ({ status }) => ({
          cleanHeaders: () => void seen.push(String(status)),
          see: chunk => void seen.push(Buffer.from(chunk).toString()),
        }),
        error => expect.fail(String(error)),
      )
      res.write('a')
      res.end('b')
    })
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
    const client = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
    close = () =>
      new Promise(resolve => {
        client.close()
        server.close(() => resolve())
      })
    const received = []
    for await (const part of client.request({ ':path': '/' })) received.push(String(part))
    expect(received.join('')).toBe('ab')
    expect(seen).toEqual(['200', 'a', 'b'])
  })

  it('is what was seen if the app breaks off', async () => {
    const { text, report } = await serve(res => {
      res.writeHead(200, headers)
      res.write('{"usage":{"prompt_tokens":5},"text":', () => res.destroy())
    })
    expect(text).toBe('broken off')
    expect(report).toMatchObject({ ending: 'cancelled', amounts: { tokens: 5, ms: 7 } })
  })

  it('does not harm the response if reading fails', async () => {
    const errors: unknown[] = []
    const { text, response } = await serve(
      res => res.writeHead(200, headers).end(BODY),
      error => errors.push(error),
      () => {
        throw new Error('a mistake')
      },
    )
    expect([text, response.headers.get('x-ms')]).toEqual([BODY, '7'])
    expect(errors).toHaveLength(1)
  })
})
