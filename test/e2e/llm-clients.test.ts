/**
 * Clients of examples/llm that speak HTTP in rare or broken ways, or leave at any point: what they cost is what the origin has reported, the
 * estimate, or nothing, and no reservation stays.
 */
import { connect } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { RunningWorker } from '../../src/node/start/worker.ts'
import { type LlmBed, startLlmBed, tokensOf } from '../support/llm-bed.ts'
import type { LlmPlan } from '../support/llm-origin.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { hasRedisServer } from '../support/servers.ts'

const PATIENTLY = { timeout: PATIENT_MS, interval: 50 }

const bodyOf = (stream: boolean) =>
  JSON.stringify({ model: 'words', messages: [{ role: 'user', content: 'Words.' }], max_tokens: 500, stream })
const [JSON_BODY, STREAM_BODY] = [bodyOf(false), bodyOf(true)]
const estimateOf = (body: string) => Math.ceil(body.length / 4) + 500
const lengthOf = (body: string) => [`Content-Length: ${body.length}`]
/** `estimateUnreadable` of examples/llm. */
const ESTIMATE_UNREADABLE = 10_000
const SLOW: LlmPlan = { output: 200, pauseMs: 10 }
const LATE: LlmPlan = { delayMs: 500 }
const CLOSES = 'Connection: close'
const chunksOf = (text: string) =>
  (text.match(/.{1,7}/gs) ?? []).map(part => `${part.length.toString(16)}\r\n${part}\r\n`).join('')

/** How the client ends its connection, and when: after what it has sent, or when it has received this. */
interface End {
  by: 'waiting' | 'FIN' | 'close' | 'reset'
  at?: RegExp
}

/** What it costs: what the origin has counted, or one of these amounts. */
type Cost = 'counted' | number

interface Case {
  method?: string
  version?: '1.0' | '1.1'
  plan?: LlmPlan
  headers: readonly string[]
  body?: string
  end?: End
  costs: readonly Cost[]
}

const CASES: Record<string, Case> = {
  'HTTP/1.0': { version: '1.0', headers: lengthOf(JSON_BODY), body: JSON_BODY, costs: ['counted'] },
  'HTTP/1.0, streaming': {
    version: '1.0',
    headers: lengthOf(STREAM_BODY),
    body: STREAM_BODY,
    costs: ['counted'],
  },
  'tiny chunks and trailers': {
    headers: ['Transfer-Encoding: chunked', 'Trailer: X-Usage-Tokens', CLOSES],
    body: `${chunksOf(JSON_BODY)}0\r\nX-Usage-Tokens: 1\r\n\r\n`,
    costs: ['counted'],
  },
  'a usage header': {
    headers: [...lengthOf(JSON_BODY), 'X-Usage-Tokens: 1', CLOSES],
    body: JSON_BODY,
    costs: ['counted'],
  },
  'Expect: 100-continue': {
    headers: [...lengthOf(JSON_BODY), 'Expect: 100-continue', CLOSES],
    body: JSON_BODY,
    costs: ['counted'],
  },
  'Expect: 100-continue without a body': {
    headers: [...lengthOf(JSON_BODY), 'Expect: 100-continue'],
    end: { by: 'close', at: /100 Continue/ },
    costs: [0],
  },
  HEAD: { method: 'HEAD', headers: [CLOSES], costs: [0] },
  // What it asks for is not known, and the origin says nothing about it.
  'HEAD with a body': {
    ...{ method: 'HEAD', headers: ['Content-Length: 5', CLOSES], body: 'words' },
    costs: [ESTIMATE_UNREADABLE],
  },
  'an invalid chunk': { headers: ['Transfer-Encoding: chunked'], body: 'zz\r\nwords', costs: [0] },
  'two lengths': {
    headers: [...lengthOf(JSON_BODY), 'Content-Length: 5', CLOSES],
    body: JSON_BODY,
    costs: [0],
  },
  'leaving in the body': {
    headers: lengthOf(JSON_BODY),
    body: JSON_BODY.slice(0, 50),
    end: { by: 'close' },
    costs: [0],
  },
  'half-closing in the body': {
    headers: lengthOf(JSON_BODY),
    body: JSON_BODY.slice(0, 50),
    end: { by: 'FIN' },
    costs: [0],
  },
  'leaving before the response': {
    plan: LATE,
    headers: lengthOf(JSON_BODY),
    body: JSON_BODY,
    end: { by: 'reset' },
    costs: ['counted', estimateOf(JSON_BODY), 0],
  },
  'half-closing before the response': {
    plan: LATE,
    headers: lengthOf(JSON_BODY),
    body: JSON_BODY,
    end: { by: 'FIN' },
    costs: ['counted'],
  },
  'leaving in the stream': {
    plan: SLOW,
    headers: lengthOf(STREAM_BODY),
    body: STREAM_BODY,
    end: { by: 'close', at: /word9 / },
    costs: ['counted'],
  },
  'resetting in the stream': {
    plan: SLOW,
    headers: lengthOf(STREAM_BODY),
    body: STREAM_BODY,
    end: { by: 'reset', at: /word9 / },
    costs: ['counted'],
  },
  'leaving at the end': {
    headers: lengthOf(STREAM_BODY),
    body: STREAM_BODY,
    end: { by: 'close', at: /DONE/ },
    costs: ['counted', estimateOf(STREAM_BODY)],
  },
}

/** Sends the bytes of a request, and waits until the connection is closed. */
function talk(url: string, text: string, { by, at }: End): Promise<void> {
  const { hostname, port } = new URL(url)
  return new Promise(resolve => {
    const socket = connect(Number(port), hostname, () => {
      socket.write(text)
      if (!at) leave()
    })
    function leave() {
      if (by === 'FIN') socket.end()
      // Later, so that the text was sent.
      else if (by === 'close') setTimeout(() => socket.destroy(), at ? 0 : 100)
      else if (by === 'reset') setTimeout(() => socket.resetAndDestroy(), at ? 0 : 100)
    }
    let received = ''
    socket.on('data', part => {
      received += part
      if (at?.test(received)) leave()
    })
    socket.on('error', () => {}).once('close', () => resolve())
  })
}

const title = hasRedisServer ? '' : ' (no redis-server is installed)'

describe.skipIf(!hasRedisServer)(`a client of examples/llm${title}`, () => {
  let bed: LlmBed
  let worker: RunningWorker
  beforeAll(async () => {
    bed = await startLlmBed()
    worker = await bed.start()
  })
  afterAll(() => bed?.close())

  it.each(Object.entries(CASES))('%s', async (name, { method = 'POST', version = '1.1', ...request }) => {
    const { plan = {}, headers, body = '', end = { by: 'waiting' }, costs } = request
    const key = await bed.key(`${Object.keys(CASES).indexOf(name)}`)
    const since = bed.origin.calls.length
    const head = [
      `${method} /v1/chat/completions HTTP/${version}`,
      ...['Host: a.test', `Authorization: Bearer ${key}`, `X-LLM: ${JSON.stringify(plan)}`],
      ...headers,
    ]
    await talk(worker.url, `${head.join('\r\n')}\r\n\r\n${body}`, end)
    await expect
      .poll(async () => {
        const { used, reserved } = await bed.books(`${Object.keys(CASES).indexOf(name)}`)
        const counted = tokensOf(bed.origin.calls.slice(since))
        const isExpected = costs.some(cost => used === (cost === 'counted' ? counted : cost))
        return isExpected && reserved.length === 0 ? 'expected' : { used, reserved, counted }
      }, PATIENTLY)
      .toBe('expected')
  })
})
