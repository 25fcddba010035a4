/** Measures the CPU time of reading what a request has cost from its reply, for each MB that passes. */
import { gzipSync } from 'node:zlib'
import type { AmountSources, ReplyHead } from '../../src/usage/usage.ts'
import { createUsageReader } from '../../src/usage/usage-reader.ts'
import { inRounds } from '../measure.ts'
import { type Findings, type Row, rowOf } from '../report.ts'

const ROUNDS = 2
const MB = 1e6
/** As a network delivers it. */
const CHUNK_BYTES = 4096

const TOKENS = { usage: 'openai' } as const
const words = (i: number) => `word${i % 1000} `

const chatEvent = (i: number) =>
  `data: {"id":"chatcmpl-abcdefghijklmnopqrstuvwxyz","object":"chat.completion.chunk","created":1764100000,"model":"words","service_tier":` +
  `"default","system_fingerprint":"fp_1234","choices":[{"index":0,"delta":{"content":"${words(i)}"},"logprobs":null,"finish_reason":null}],"usage":null}\n\n`
const messageEvent = (i: number) =>
  `event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"${words(i)}"}}\n\n`
const CHAT_USAGE =
  'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5}}\n\ndata: [DONE]\n\n'
const MESSAGE_USAGE =
  'event: message_delta\ndata: {"type":"message_delta","usage":{"input_tokens":9,"output_tokens":5}}\n\n'

/** @returns at least a MB */
function repeated(textOf: (i: number) => string): string {
  let text = ''
  for (let i = 0; text.length < MB; i++) text += textOf(i)
  return text
}

interface Case {
  what: string
  body: Uint8Array
  sources: AmountSources
  headers: Record<string, string>
  hidesUsage?: boolean
  /** Bytes after decompression. */
  bytes: number
  /** At most so many ms of CPU for each MB. */
  most: number
}

function casesOf(): Case[] {
  const stream = { 'content-type': 'text/event-stream' }
  const chat = Buffer.from(repeated(chatEvent) + CHAT_USAGE)
  const messages = Buffer.from(repeated(messageEvent) + MESSAGE_USAGE)
  const usage = '"usage":{"prompt_tokens":9,"completion_tokens":5}'
  const text = Buffer.from(`{"choices":[{"message":{"content":"${repeated(words)}"}}],${usage}}`)
  const numbers = repeated(i => `${Math.sin(i)},`)
  const embeddings = Buffer.from(`{"data":[{"embedding":[${numbers}0]}],${usage}}`)
  const common = { sources: { tokens: TOKENS }, headers: {} }
  return [
    {
      ...common,
      what: 'a stream of chat completions',
      body: chat,
      headers: stream,
      bytes: chat.length,
      most: 5,
    },
    {
      ...common,
      ...{ what: 'the same, and hiding the usage', body: chat, headers: stream, bytes: chat.length },
      ...{ hidesUsage: true, most: 15 },
    },
    {
      ...{
        what: 'a stream of messages of Anthropic',
        body: messages,
        headers: stream,
        bytes: messages.length,
      },
      ...{ sources: { tokens: { usage: 'anthropic' } }, most: 5 },
    },
    { ...common, what: 'a completion in JSON', body: text, bytes: text.length, most: 5 },
    { ...common, what: 'embeddings in JSON', body: embeddings, bytes: embeddings.length, most: 5 },
    {
      ...common,
      ...{ what: 'embeddings in JSON, gzip', body: gzipSync(embeddings), bytes: embeddings.length },
      ...{ headers: { 'content-encoding': 'gzip' }, most: 25 },
    },
  ]
}

export async function usage(): Promise<Findings> {
  const cases = casesOf()
  const tasks = Object.fromEntries(cases.map(one => [one.what, () => cpuPerMb(one)]))
  for (const task of Object.values(tasks)) await task()
  const rounds = await inRounds(ROUNDS, tasks)
  const rows: Row[] = cases.map(({ what, most }) =>
    rowOf(`CPU of reading ${what}, for each MB`, rounds[what]!, { unit: 'ms', most }),
  )
  return {
    rows,
    rounds: [{ title: 'CPU of reading usage, ms per MB', columns: rounds }],
    notes: [
      `A MB is a million bytes of the body, decompressed. It arrives in chunks of ${CHUNK_BYTES} bytes. An event of a chat completion has ` +
        `${chatEvent(1).length} bytes, one of a message ${messageEvent(1).length}. CPU is that of the process, on Node.`,
    ],
  }
}

async function cpuPerMb({ body, sources, headers, bytes, hidesUsage }: Case): Promise<number> {
  const head: ReplyHead = { status: 200, headers: new Headers(headers) }
  const repetitions = 5
  const before = process.cpuUsage()
  for (let i = 0; i < repetitions; i++) {
    const reader = createUsageReader(sources, head, { hidesUsage })
    for (let at = 0; at < body.length; at += CHUNK_BYTES) {
      const chunk = body.subarray(at, at + CHUNK_BYTES)
      reader.pass(chunk)
      const seen = reader.see(chunk)
      if (seen) await seen
    }
    const { amounts } = await reader.end('complete')
    if (amounts.tokens !== 14) throw new Error(`The usage is ${JSON.stringify(amounts)}.`)
  }
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1e3 / repetitions / (bytes / MB)
}
