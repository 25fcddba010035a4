/**
 * The usage that language models report, in JSON bodies and in events. Counts of a stream are cumulative, so the latest value of each field
 * counts, and never a sum.
 */
import { MAX_AMOUNT, type Tokens } from './tokens.ts'
import type { UsageFormat } from './usage.ts'

/** Collects the usage of one reply. */
export interface UsageOfReply {
  /**
   * Reads a JSON body, or the data of an event.
   * @returns false if a field is not a number of tokens. Then all of its usage is ignored
   */
  read(json: unknown): boolean
  /** Takes note of an event without usage, by its name. */
  noteEvent(name: string | undefined): void
  /** What the reply has reported so far; undefined: nothing. */
  tokens(): Tokens | undefined
  /** Whether the model has reported its last usage. */
  isFinal(): boolean
}

/** The fields of one usage object. */
type Fields = Partial<Record<'input' | 'output' | 'cached' | 'cacheWrite', unknown>>

type Json = Readonly<Record<string, unknown>>

const objectOf = (value: unknown): Json | undefined =>
  typeof value === 'object' && value !== null ? (value as Json) : undefined

/** An event without this has no usage. In texts of JSON, quotes are escaped, so texts of the model do not match. */
export const USAGE_OBJECT = /"usage"\s*:\s*\{/

/** Whether a chunk of a chat completion has only the usage, which the client has to ask for (`stream_options.include_usage`). */
export function isUsageChunk(json: unknown): boolean {
  const { usage, choices } = objectOf(json) ?? {}
  return objectOf(usage) !== undefined && isEmptyList(choices)
}

/** Some servers send `null`, or leave out the list. */
const isEmptyList = (choices: unknown) => (Array.isArray(choices) ? choices.length === 0 : choices == null)

interface Format {
  /** The usage object of a JSON body or an event. */
  usageOf(json: Json): Json | undefined
  fieldsOf(usage: Json): Fields
  /** Whether no more usage follows. */
  isLast(json: Json): boolean
  /** The cached tokens are also in `input`. */
  inputHasCached: boolean
  /** The name of events that stand for at least one token of output each, unless the model has reported them. */
  deltaEvent?: string
}

const FORMATS: Record<UsageFormat, Format> = {
  openai: {
    // An event of the Responses API has the usage in its response.
    usageOf: json => objectOf(json.usage) ?? objectOf(objectOf(json.response)?.usage),
    fieldsOf: usage => ({
      input: usage.prompt_tokens ?? usage.input_tokens,
      output: usage.completion_tokens ?? usage.output_tokens,
      cached: objectOf(usage.prompt_tokens_details ?? usage.input_tokens_details)?.cached_tokens,
    }),
    isLast: ({ choices }) => isEmptyList(choices),
    inputHasCached: true,
  },
  anthropic: {
    // The first event has the usage in its message.
    usageOf: json => objectOf(json.usage) ?? objectOf(objectOf(json.message)?.usage),
    fieldsOf: usage => ({
      input: withCompaction(usage, 'input_tokens'),
      output: withCompaction(usage, 'output_tokens'),
      cached: withCompaction(usage, 'cache_read_input_tokens'),
      cacheWrite: withCompaction(usage, 'cache_creation_input_tokens'),
    }),
    isLast: ({ type }) => type !== 'message_start',
    inputHasCached: false,
    deltaEvent: 'content_block_delta',
  },
}

/** The counts of a usage object leave out those of compactions, which are billed as well. */
function withCompaction(usage: Json, field: string): unknown {
  const { iterations } = usage
  if (!Array.isArray(iterations)) return usage[field]
  return iterations
    .filter(iteration => objectOf(iteration)?.type === 'compaction')
    .reduce<unknown>((sum, iteration) => Number(sum ?? 0) + Number(iteration[field] ?? 0), usage[field])
}

const isTokenCount = (value: unknown): value is number =>
  Number.isInteger(value) && (value as number) >= 0 && (value as number) <= MAX_AMOUNT

export function createUsageOfReply(name: UsageFormat): UsageOfReply {
  const format: Format = FORMATS[name]
  const latest: { -readonly [Field in keyof Fields]: number } = {}
  let isFinal = false
  let deltas = 0

  return {
    read(json) {
      const object = objectOf(json)
      const usage = object && format.usageOf(object)
      if (!usage) return true
      const fields = Object.entries(format.fieldsOf(usage)).filter(
        ([, value]) => value !== undefined && value !== null,
      )
      // Not the valid fields alone: they would be less than what the request has cost.
      if (!fields.every(([, value]) => isTokenCount(value))) return false
      Object.assign(latest, Object.fromEntries(fields))
      if (format.isLast(object) && latest.input !== undefined) isFinal = true
      return true
    },
    noteEvent(event) {
      if (event !== undefined && event === format.deltaEvent) deltas += 1
    },
    tokens() {
      const { input, output = 0, cached = 0, cacheWrite = 0 } = latest
      if (input === undefined) return undefined
      return {
        input: format.inputHasCached ? Math.max(input - cached, 0) : input,
        output: isFinal ? output : Math.max(output, deltas),
        cached: format.inputHasCached ? Math.min(cached, input) : cached,
        cacheWrite,
      }
    },
    isFinal: () => isFinal,
  }
}
