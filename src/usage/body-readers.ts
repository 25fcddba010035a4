/** Read what sources look for in the body of a reply, which is decoded. */
import { createEventReader } from './event-stream.ts'
import { createUsageOfReply, USAGE_OBJECT, type UsageOfReply } from './formats.ts'
import {
  createJsonValues,
  EACH,
  type FoundValue,
  type JsonPath,
  parsePointer,
  valueAt,
} from './json-values.ts'
import { createLargeEvent, type LargeEvent } from './large-event.ts'
import type { AmountSource, UsageFormat } from './usage.ts'

/** Looks at a decoded body. */
export interface BodyReader {
  feed(bytes: Uint8Array): void
  /** Reads what is left, such as a last event without its blank line. */
  end(): void
  /** What is found at each pointer; undefined: nothing. */
  valueOf(unit: string): unknown
  /** The body has what JSON or an event stream has. */
  isValid(): boolean
  /** Whether no later usage can follow. @param hasEnded the body has ended */
  isWhole(hasEnded: boolean): boolean
  /** The first event of the stream is an error. */
  beganWithError(): boolean
}

export type BodySources = readonly (readonly [unit: string, source: AmountSource])[]
export type Usages = ReadonlyMap<UsageFormat, UsageOfReply>

export const usagesOf = (sources: BodySources): Usages =>
  new Map(
    sources.flatMap(([, source]) =>
      'usage' in source ? [[source.usage, createUsageOfReply(source.usage)] as const] : [],
    ),
  )

/** The path of each unit that is read by a pointer. `check` has refused what is not a pointer. */
function pathsOf(sources: BodySources): [unit: string, path: string[]][] {
  return sources.flatMap(([unit, source]) =>
    'json' in source ? [[unit, parsePointer(source.json) ?? []]] : [],
  )
}

type CreateBodyReader = (
  sources: BodySources,
  usages: Usages,
  maxEventBytes: number,
  onBadTokens: () => void,
) => BodyReader

/** What is read for usage, by name. */
const USAGE_PATHS: readonly JsonPath[] = [
  ...[['usage'], ['status'], ['object'], ['id'], ['type'], ['usageMetadata']],
  // A stream of Gemini without `alt=sse` is a list.
  [EACH, 'usageMetadata'],
]

/** Reads a body that is one JSON value. */
export const readerOfJson: CreateBodyReader = (sources, usages, _, onBadTokens) => {
  const paths = pathsOf(sources)
  const values = createJsonValues([...paths.map(([, path]) => path), ...(usages.size > 0 ? USAGE_PATHS : [])])
  return {
    feed: bytes => values.feed(bytes),
    end() {
      values.end()
      const found = values.found.slice(paths.length).map(each => each?.value)
      const [usage, status, object, id, type, ofOne, ofLast] = found
      const json = { usage, status, object, id, type, usageMetadata: ofOne ?? ofLast }
      for (const reader of usages.values()) if (!reader.read(json)) onBadTokens()
    },
    valueOf: unit => values.found[paths.findIndex(([name]) => name === unit)]?.value,
    isValid: () => values.isJson(),
    isWhole(hasEnded) {
      const reported = [...usages.values()].filter(usage => usage.tokens())
      const hasAll = reported.every(usage => usage.isFinal(hasEnded))
      return (
        hasAll && (hasEnded || (reported.length === usages.size && paths.every((_, i) => values.found[i])))
      )
    },
    beganWithError: () => false,
  }
}

/** What is read for usage in an event that is not kept: images can be part of it. */
const PATHS_OF_EVENT: readonly (readonly string[])[] = [
  ...[['type'], ['usage'], ['message', 'usage'], ['usageMetadata']],
  ...['usage', 'status', 'object', 'id'].map(name => ['response', name]),
]

/** An object with the values that were found at `PATHS_OF_EVENT`. */
function jsonWith(values: readonly (FoundValue | undefined)[]): Record<string, unknown> {
  const json: Record<string, unknown> = {}
  for (const [i, [name = '', inner]] of PATHS_OF_EVENT.entries()) {
    const found = values[i]
    if (!found) continue
    json[name] = inner === undefined ? found.value : { ...(json[name] as object), [inner]: found.value }
  }
  return json
}

/** Reads a body that is an event stream. */
export const readerOfEvents: CreateBodyReader = (sources, usages, maxEventBytes, onBadTokens) => {
  const paths = pathsOf(sources).map(([unit, path]) => ({
    unit,
    path,
    // Parsing each event would take most of the time.
    mark: JSON.stringify(path.findLast(token => !/^\d+$/.test(token)) ?? '').slice(1, -1),
  }))
  const readers = [...usages.values()]
  const found = new Map<string, unknown>()
  let events = 0
  let beganWithError = false
  let isValid = true

  function onEvent({ event, data }: { event?: string | undefined; data: string }): void {
    events += 1
    if (events === 1) beganWithError = event === 'error' || /^\s*\{\s*"error"\s*:/.test(data)
    if (events > 1 || !beganWithError) for (const usage of readers) usage.noteEvent(event, data)
    const hasUsage = readers.length > 0 && USAGE_OBJECT.test(data)
    // The first event of a response has its id.
    const hasJob = events === 1 && !hasUsage && event?.startsWith('response.')
    const marked = paths.length === 0 ? paths : paths.filter(({ mark }) => data.includes(mark))
    if (!hasUsage && !hasJob && marked.length === 0) return
    let json: unknown
    try {
      json = JSON.parse(data)
    } catch {
      // The end of a stream can be a word, such as [DONE].
      if (hasUsage) isValid = false
      return
    }
    for (const usage of readers) {
      if (hasJob) usage.noteJob(json)
      if (hasUsage && !usage.read(json)) onBadTokens()
    }
    for (const { unit, path } of marked) {
      const value = valueAt(json, path)
      if (value !== undefined && value !== null) found.set(unit, value)
    }
  }

  /** Reads what was found in the data of an event that was not kept. */
  function endLarge(event: LargeEvent): void {
    events += 1
    const values = event.end()
    for (const usage of usages.values()) if (!usage.read(jsonWith(values.slice(paths.length)))) onBadTokens()
    for (const [i, { unit }] of paths.entries()) {
      const { value } = values[i] ?? {}
      if (value !== undefined && value !== null) found.set(unit, value)
    }
  }

  const reader = createEventReader(
    maxEventBytes,
    onEvent,
    () => createLargeEvent([...paths.map(({ path }) => path), ...PATHS_OF_EVENT]),
    endLarge,
  )
  return {
    feed: bytes => reader.feed(bytes),
    end: () => reader.end(),
    valueOf: unit => found.get(unit),
    isValid: () => isValid,
    isWhole: hasEnded =>
      usages.size > 0 ? [...usages.values()].some(usage => usage.isFinal(hasEnded)) : hasEnded,
    beganWithError: () => beganWithError,
  }
}

/** The bytes that events begin with: `data`, `event`, `id`, `retry`, and a colon for comments. JSON begins with none of them. */
const FIRST_OF_EVENTS = new Set([...'deir:'].map(char => char.charCodeAt(0)))

/** Reads a body of an unknown type. Some servers send events as JSON or text. */
export const readerOfEither: CreateBodyReader = (...args) => {
  let reader: BodyReader | undefined
  const chosen = () => (reader ??= readerOfJson(...args))
  return {
    feed(bytes) {
      const first = bytes.find(byte => byte > 32 && byte < 128)
      if (!reader && first === undefined) return
      if (FIRST_OF_EVENTS.has(first!)) reader ??= readerOfEvents(...args)
      chosen().feed(bytes)
    },
    end: () => chosen().end(),
    valueOf: unit => chosen().valueOf(unit),
    isValid: () => chosen().isValid(),
    isWhole: hasEnded => chosen().isWhole(hasEnded),
    beganWithError: () => chosen().beganWithError(),
  }
}
