/** The form of the recorded states in test/fixtures (README.md there), and how they are read and written. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { brotliCompressSync, brotliDecompressSync } from 'node:zlib'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { jwt } from '../../src/credentials/jwt.ts'
import type { RedisConnection, Reply } from '../../src/node/rest-bridge/redis-connection.ts'
import { sha1 } from '../../src/sha1.ts'
import type { ScriptText } from '../../src/store/store.ts'

/** A text, or bytes that are not printable. */
type Value = string | { base64: string }

export interface StoredKey {
  key: string
  type: string
  /** A string; or the fields of a hash, the members of a sorted set with their scores, the ids of a stream with their fields. */
  value: Value | Value[][]
  /** The time until it expires (ms). Absent: it does not. */
  leftMs?: number
}

/** One request of an isolate to the store: calls of scripts, plain commands, or commands for administration. */
export interface Trip {
  /** Absent: to the store that decides. */
  admin?: 'run' | 'runEach' | 'transact'
  /** A script is named by its SHA-1, also in EVAL. */
  calls: readonly RecordedCall[]
  replies: readonly unknown[]
}

export interface RecordedCall {
  /** EVALSHA for scripts. */
  command: readonly (string | number)[]
}

/** What a caller or an operator does at a time. */
export interface Step {
  /** Unique. */
  name: string
  /** µs since the recording. */
  at: number
  /** The isolate that does it. Absent: a new one. If its name ends in `one` or `two`, another version has the isolates of the other name. */
  isolate?: string
  environment?: string
  /** `POST /_sluice/v1/limits/fixed`. Absent: there is an `event`. */
  request?: string
  headers?: Readonly<Record<string, string>>
  /** As JSON. `{ receiptOf: step }` is replaced by the receipt of an earlier step. */
  body?: unknown
  /** What the origin answers. `isOpen`: the body has no end before the step `finish`. */
  origin?: { headers?: Readonly<Record<string, string>>; body?: unknown; isOpen?: boolean }
  /** The store does not answer during this step. */
  isStoreAway?: boolean
  /** Instead of a request. `finish`: ends the open body of an earlier step. `ring`: runs the timers that are due. */
  event?: { finish: string } | 'ring' | 'stop'
}

export interface Answer {
  status: number
  headers: Readonly<Record<string, string>>
  body?: unknown
  /** Of the body, which does not have it any more. */
  receipt?: Receipt
}

export type Receipt = Readonly<Record<string, unknown>>

export interface RecordedStep extends Step {
  answer?: Answer
  trips: readonly Trip[]
}

export interface About {
  /** Of the version that has written the state. */
  commit: string
  /** µs since the epoch, by the clock of Redis. */
  recordedAt: number
  /** Plain data: tokens of `issuers` are a credential method each. */
  config: ConfigInput
  issuers: Readonly<Record<string, Parameters<typeof jwt>[0]>>
  /** Of the environment of a deployment. They are made up. */
  variables: Readonly<Record<string, string>>
  /** API keys, tokens and what else a test sends, by name. */
  secrets: Readonly<Record<string, string>>
  /** Of decisions before the recording, by the name of the step. */
  receipts: Readonly<Record<string, Receipt>>
  /** Those that ran at the recording. Only calls of that version can go on with their work. */
  isolates: readonly string[]
}

export interface RecordedState {
  about: About
  keys: readonly StoredKey[]
  steps: readonly RecordedStep[]
  /** The scripts that the steps run, by SHA-1. */
  scripts: ReadonlyMap<string, ScriptText>
}

const [ABOUT, KEYS, STEPS, SCRIPTS] = [
  'about.json',
  'keys.ndjson',
  'steps.json.br',
  'scripts.json.br',
] as const

export function readRecordedState(folder: string): RecordedState {
  const bytes = (file: string) => readFileSync(join(folder, file))
  const compressed = (file: string) => JSON.parse(brotliDecompressSync(bytes(file)).toString('utf8'))
  const lines = bytes(KEYS).toString('utf8').trimEnd().split('\n')
  const sources: string[] = compressed(SCRIPTS)
  return {
    about: JSON.parse(bytes(ABOUT).toString('utf8')),
    keys: lines.map(line => JSON.parse(line)),
    steps: compressed(STEPS),
    scripts: new Map(sources.map(source => [sha1(source), { source, sha1: sha1(source) }])),
  }
}

/** @throws Error if the folder exists: a recorded state is never written again */
export function writeRecordedState(folder: string, { about, keys, steps, scripts }: RecordedState): void {
  mkdirSync(folder)
  const compressed = (all: unknown) => brotliCompressSync(JSON.stringify(all))
  const sources = [...scripts.values()].map(({ source }) => source).sort()
  writeFileSync(join(folder, ABOUT), `${JSON.stringify(about, null, 2)}\n`)
  writeFileSync(join(folder, KEYS), keys.map(each => `${JSON.stringify(each)}\n`).join(''))
  writeFileSync(join(folder, STEPS), compressed(steps))
  writeFileSync(join(folder, SCRIPTS), compressed(sources))
}

/** The config of a recorded state, with the functions that JSON does not have. */
export function configInputOf({ config, issuers }: Pick<About, 'config' | 'issuers'>): ConfigInput {
  const methods = Object.entries(issuers).map(([name, input]) => [name, jwt(input)])
  return { ...config, credentials: { ...config.credentials, jwt: Object.fromEntries(methods) } }
}

type Redis = Pick<RedisConnection, 'send'>

/** Everything that a Redis has, in the order of the keys. */
export async function readKeys(redis: Redis): Promise<StoredKey[]> {
  const names = ((await redis.send(['KEYS', '*'])) as Buffer[]).map(String).sort()
  return await Promise.all(
    names.map(async key => {
      const type = String(await redis.send(['TYPE', key]))
      const left = Number(await redis.send(['PTTL', key]))
      return { key, type, value: await contentOf(redis, key, type), ...(left >= 0 && { leftMs: left }) }
    }),
  )
}

async function contentOf(redis: Redis, key: string, type: string): Promise<StoredKey['value']> {
  const all = async (...command: string[]) => (await redis.send(command)) as Reply[]
  switch (type) {
    case 'string':
      return written((await redis.send(['GET', key])) as Buffer)
    case 'hash':
      return pairs(await all('HGETALL', key)).sort(byFirst)
    case 'zset':
      return pairs(await all('ZRANGE', key, '0', '-1', 'WITHSCORES'))
    case 'stream':
      return (await all('XRANGE', key, '-', '+')).map(entry => (entry as Reply[]).flat().map(written))
    default:
      throw new Error(`The key ${key} has a type that recorded states do not have: ${type}.`)
  }
}

/** @param redis the Redis itself, not one with a clock: the ids of streams are written as they are */
export async function loadKeys(redis: Redis, keys: readonly StoredKey[]): Promise<void> {
  await Promise.all(
    keys.flatMap(({ key, type, value, leftMs }) => {
      const rows = typeof value === 'object' && Array.isArray(value) ? value.map(row => row.map(bytesOf)) : []
      const commands = {
        string: [['SET', key, rows.length > 0 ? '' : bytesOf(value as Value)]],
        hash: [['HSET', key, ...rows.flat()]],
        zset: [['ZADD', key, ...rows.flatMap(([member, score]) => [score!, member!])]],
        stream: rows.map(([id, ...fields]) => ['XADD', key, id!, ...fields]),
      }[type]!
      const expiry = leftMs === undefined ? [] : [['PEXPIRE', key, String(leftMs)]]
      return [...commands, ...expiry].map(command => redis.send(command))
    }),
  )
}

const byFirst = ([a]: Value[], [b]: Value[]) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1)

const pairs = (list: readonly Reply[]): Value[][] =>
  list.flatMap((first, i) => (i % 2 === 0 ? [[written(first), written(list[i + 1]!)]] : []))

/** Printable ASCII is text. */
function written(reply: Reply): Value {
  const bytes = Buffer.isBuffer(reply) ? reply : Buffer.from(String(reply))
  const text = bytes.toString('latin1')
  return /^[\x20-\x7e\n]*$/.test(text) ? text : { base64: bytes.toString('base64') }
}

const bytesOf = (value: Value): string | Buffer =>
  typeof value === 'string' ? value : Buffer.from(value.base64, 'base64')
