/**
 * The faults of the store over HTTP, between the Worker and the bridge. If a call does not arrive, nothing is spent. If only the reply is
 * lost, Redis has spent units that the Worker does not know of.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Fault } from '../support/counting-proxy.ts'
import { DEADLINE_MS } from './modes.ts'

export interface StoreFault {
  name: string
  /** Absent: the store does not listen during the call. */
  fault?: Fault
  /** The call reaches Redis, so it may spend units. */
  arrives?: true
  /** Not a failure, and must not be treated as one. */
  isHarmless?: true
  /** Calls are answered later than the deadline. An isolate that is late itself accepts the answer. */
  answersLate?: true
  /** The store goes on to decide. */
  decides?: true
  /** The store reports that its Upstash plan is used up, so the Worker waits longer before it tries again. */
  isQuotaFault?: true
  /** Also part of `npm run test:all`, not only of `npm run test:anomalies`. */
  isTypical?: true
}

const JSON_TYPE = { 'content-type': 'application/json' }

const says =
  (status: number, body: string, headers: Record<string, string> = JSON_TYPE): Fault =>
  (request, response) => {
    request.resume()
    response.writeHead(status, headers).end(body)
  }

const errors = (status: number, ...messages: readonly string[]): StoreFault[] =>
  messages.map(message => ({
    name: `answers ${status} ${message}`,
    fault: says(status, JSON.stringify({ error: message })),
  }))

/** Forwards the call, and replaces the complete answer. */
const spoiled =
  (act: (body: Buffer, response: ServerResponse) => void): Fault =>
  (_, response, passOn) =>
    passOn(async answer => {
      // The client may have given up since.
      response.on('error', () => {})
      act(await bodyOf(answer), response)
    })

export async function bodyOf(answer: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = []
  for await (const chunk of answer as AsyncIterable<Buffer>) chunks.push(chunk)
  return Buffer.concat(chunks)
}

/** Replaces the list in the reply of a script. */
const edited = (edit: (list: unknown[]) => unknown): Fault =>
  spoiled((body, response) => {
    const answer = JSON.parse(String(body)) as { result: unknown[] } | { result: unknown[] }[]
    // Only replies of scripts have a list, and hashes, which can be empty.
    for (const each of [answer].flat()) {
      if (Array.isArray(each.result) && each.result.length > 1) each.result = edit(each.result) as unknown[]
    }
    response.writeHead(200, JSON_TYPE).end(JSON.stringify(answer))
  })

const DRIP_MS = 40

/** `npm run test:all` runs only these: the other faults have the same effects on the gateway. */
const typical = (fault: StoreFault): StoreFault => ({ ...fault, isTypical: true })

const quotaFault = (fault: StoreFault): StoreFault => ({ ...fault, isQuotaFault: true })

const arriving = (name: string, fault: Fault): StoreFault => ({ name, fault, arrives: true })

export const STORE_FAULTS: readonly StoreFault[] = [
  typical({ name: 'refuses connections' }),
  typical({ name: 'hangs', fault: request => request.resume() }),
  { name: 'closes the connection', fault: (_, response) => response.socket?.end() },
  { name: 'resets the connection', fault: (_, response) => response.socket?.resetAndDestroy() },
  ...errors(400, 'ERR wrong number of arguments', 'ERR max request size exceeded'),
  ...errors(
    400,
    'ERR max daily request limit exceeded. Limit: 10000, Usage: 10000.',
    'ERR max requests limit exceeded. Limit: 500000, Usage: 500000.',
  ).map(quotaFault),
  ...errors(400, 'NOSCRIPT No matching script. Please use EVAL.').map(typical),
  ...errors(
    400,
    'LOADING Redis is loading the dataset in memory',
    "READONLY You can't write against a read only replica.",
  ),
  ...errors(400, "OOM command not allowed when used memory > 'maxmemory'."),
  ...errors(
    400,
    'MISCONF Redis is configured to save RDB snapshots, but it is currently unable to persist to disk.',
  ),
  ...errors(
    400,
    'BUSY Redis is busy running a script.',
    'ERR Error running script: Script killed by user with SCRIPT KILL.',
  ),
  ...errors(400, 'UNKILLABLE Sorry the script already executed write commands against the dataset.'),
  ...errors(401, 'WRONGPASS invalid or missing auth token'),
  ...errors(405, 'ERR method not allowed'),
  ...errors(429, 'ERR max requests limit exceeded').map(quotaFault),
  ...errors(500, 'ERR internal error'),
  ...errors(502, 'ERR bad gateway'),
  ...errors(503, 'ERR Redis cannot be reached'),
  ...errors(504, 'ERR Redis did not answer in time'),
  {
    name: 'answers 502 with a web page',
    fault: says(502, '<html>Bad Gateway</html>', { 'content-type': 'text/html' }),
  },
  {
    name: 'answers 200 with a web page',
    fault: says(200, '<html>Log in</html>', { 'content-type': 'text/html' }),
  },
  { name: 'answers 200 with nothing', fault: says(200, '') },
  { name: 'redirects elsewhere', fault: says(302, '', { location: 'http://127.0.0.1:9/' }) },
  {
    ...arriving('is late', (_, response, passOn) =>
      passOn(async answer => {
        const body = await bodyOf(answer)
        setTimeout(() => response.writeHead(200, JSON_TYPE).end(body), DEADLINE_MS + 100)
      }),
    ),
    answersLate: true,
  },
  typical(
    arriving(
      'resets mid-reply',
      spoiled((body, response) => {
        response.writeHead(200, { ...JSON_TYPE, 'content-length': body.length })
        response.write(body.subarray(0, body.length / 2), () => response.socket?.resetAndDestroy())
      }),
    ),
  ),
  arriving(
    'closes mid-reply',
    spoiled((body, response) => {
      response.writeHead(200, { ...JSON_TYPE, 'content-length': body.length })
      response.write(body.subarray(0, body.length / 2), () => response.socket?.end())
    }),
  ),
  arriving(
    'hangs mid-reply',
    spoiled((body, response) => {
      response.writeHead(200, { ...JSON_TYPE, 'content-length': body.length })
      response.write(body.subarray(0, body.length / 2))
    }),
  ),
  {
    ...arriving(
      'sends its reply slower than the deadline',
      spoiled((body, response) => {
        response.writeHead(200, { ...JSON_TYPE, 'content-length': body.length })
        let sent = 0
        const timer = setInterval(() => {
          if (response.destroyed || sent === body.length) return clearInterval(timer)
          response.write(body.subarray(sent, ++sent))
          if (sent === body.length) response.end()
        }, DRIP_MS)
      }),
    ),
    answersLate: true,
  },
  arriving(
    'answers with half of the JSON',
    spoiled((body, response) => response.writeHead(200, JSON_TYPE).end(body.subarray(0, body.length / 2))),
  ),
  arriving(
    'answers twice in one body',
    spoiled((body, response) => response.writeHead(200, JSON_TYPE).end(Buffer.concat([body, body]))),
  ),
  {
    ...arriving(
      'answers twice on one connection',
      spoiled((body, response) => {
        const head = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n`
        const whole = Buffer.concat([Buffer.from(head), body])
        response.socket?.write(Buffer.concat([whole, whole]))
      }),
    ),
    decides: true,
  },
  arriving(
    'answers with 5 MB',
    spoiled((_, response) => response.writeHead(200, JSON_TYPE).end(`{"result":[1,"${'x'.repeat(5e6)}"]}`)),
  ),
  arriving(
    'answers with too few numbers',
    edited(list => list.slice(0, -1)),
  ),
  arriving(
    'answers with too many numbers',
    edited(list => [...list, 0]),
  ),
  arriving(
    'answers with text for a number',
    edited(list => list.with(-1, 'x')),
  ),
  arriving(
    'answers with a fraction',
    edited(list => list.with(-2, 0.5)),
  ),
  arriving(
    'answers with null',
    edited(() => null),
  ),
  arriving(
    'answers OK',
    edited(() => 'OK'),
  ),
  arriving(
    'answers with an unknown status',
    edited(list => list.with(0, 7)),
  ),
  arriving(
    'executes the call, then answers 500',
    spoiled((_, response) => response.writeHead(500, JSON_TYPE).end('{"error":"ERR"}')),
  ),
  {
    ...arriving('is slow, but within the deadline', (_, __, passOn) => setTimeout(passOn, DEADLINE_MS / 4)),
    isHarmless: true,
    decides: true,
  },
]
