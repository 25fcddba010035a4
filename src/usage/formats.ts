/**
 * The usage that language models report, in JSON bodies and in events. Counts of a stream are cumulative, so the latest value of each field
 * counts, and never a sum.
 */
import { MAX_AMOUNT, NO_TOKENS, type Tokens } from './tokens.ts'
import type { Job, UsageFormat } from './usage.ts'

/** Collects the usage of one reply. */
export interface UsageOfReply {
  /**
   * Reads a JSON body, or the data of an event.
   * @returns false if a field is not a number of tokens. Then all of its usage is ignored
   */
  read(json: unknown): boolean
  /** Reads what job a JSON body or an event is about. */
  noteJob(json: unknown): void
  /** The last job that was read. */
  job(): Job | undefined
  /** Counts an event that has output, before its usage is read. @param name undefined: it has none */
  noteEvent(name: string | undefined, data: string): void
  /** What the reply has reported so far, and a token for each event with output since then; undefined: it has reported nothing. */
  tokens(): Tokens | undefined
  /** A token for each event with output of a reply that has reported nothing; undefined: there was none. */
  counted(): Tokens | undefined
  /** Whether the reply has reported all of its usage. @param hasEnded its body has ended */
  isFinal(hasEnded: boolean): boolean
}

/** The fields of one usage object. */
type Fields = Partial<Record<'input' | 'output' | 'cached' | 'cacheWrite', unknown>>

type Json = Readonly<Record<string, unknown>>

const objectOf = (value: unknown): Json | undefined =>
  typeof value === 'object' && value !== null ? (value as Json) : undefined

/** An event without this has no usage. In texts of JSON, quotes are escaped, so texts of the model do not match. */
export const USAGE_OBJECT = /"usage(?:Metadata)?"\s*:\s*\{/

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
}

const MAX_ID_LENGTH = 512

/** A background response and a batch report what they have used so far, or zeros, until they have one of these. */
const FINISHED = new Set<string>(['completed', 'failed', 'cancelled', 'incomplete', 'expired'])

const FORMATS: Record<UsageFormat, Format> = {
  openai: {
    // An event of the Responses API has the usage in its response, Groq in x_groq, and Kimi in the choice that has ended.
    usageOf: json =>
      objectOf(json.usage) ??
      objectOf(objectOf(json.response)?.usage) ??
      objectOf(objectOf(json.x_groq)?.usage) ??
      objectOf(firstChoice(json)?.usage),
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
  },
  gemini: {
    // Each chunk of a stream has the usage so far.
    usageOf: json => objectOf(json.usageMetadata),
    fieldsOf: usage => ({
      input: sumOf(usage.promptTokenCount, usage.toolUsePromptTokenCount),
      output: sumOf(usage.candidatesTokenCount, usage.thoughtsTokenCount),
      cached: usage.cachedContentTokenCount,
    }),
    isLast: ({ candidates }) =>
      Array.isArray(candidates) && candidates.some(candidate => objectOf(candidate)?.finishReason),
    inputHasCached: true,
  },
}

/**
 * The format of the usage in a reply. One origin often serves several APIs, and the caller chooses the path. So the format of the config only
 * decides what the reply leaves open.
 */
function formatOf(json: Json, name: UsageFormat): Format {
  if (objectOf(json.usageMetadata)) return FORMATS.gemini
  if (typeof json.type === 'string' && /^message(?:_|$)/.test(json.type)) return FORMATS.anthropic
  const isAnthropic = name === 'anthropic' && json.object === undefined && !json.response
  return isAnthropic && objectOf(json.usage)?.prompt_tokens === undefined ? FORMATS.anthropic : FORMATS.openai
}

/** What an event has if it has no name and has output: a chunk of OpenAI or Gemini. */
const OUTPUT_MEMBERS = ['"choices"', '"candidates"']

const CONTENT_BLOCK_DELTA = 'content_block_delta'
const DELTA = [...'delta'].map(char => char.charCodeAt(0))
const DOT = 46

/**
 * Whether an event with this name has output of the model, which is at least one token: `*.delta` or `content_block_delta`. Most events of a
 * stream have such a name. It is a part of a larger text, which engines compare slowly, but of which they read single characters fast. So of
 * `content_block_delta`, only its end and its length are compared.
 */
function isOutputEvent(name: string): boolean {
  const from = name.length - DELTA.length
  for (let i = 0; i < DELTA.length; i++) if (name.charCodeAt(from + i) !== DELTA[i]) return false
  return name.charCodeAt(from - 1) === DOT || name.length === CONTENT_BLOCK_DELTA.length
}

/** The sum of two counts, of which each can be absent. */
const sumOf = (a: unknown, b: unknown): unknown => (b === undefined ? a : Number(a ?? 0) + Number(b))

const firstChoice = ({ choices }: Json): Json | undefined =>
  Array.isArray(choices) ? objectOf(choices[0]) : undefined

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

const OPEN_OBJECT = 123

export function createUsageOfReply(name: UsageFormat): UsageOfReply {
  /** Of the last usage. */
  let format: Format = FORMATS[name]
  const latest: { -readonly [Field in keyof Fields]: number } = {}
  /** The output of each choice that reports its own. */
  const outputs = new Map<unknown, number>()
  let isLast = false
  let isBroken = false
  let job: Job | undefined
  /** Events with output since the last usage. */
  let deltas = 0

  /** Searching each event would take half as much time again, so only what follows the usage is searched, such as a cost. */
  function isOutput(data: string): boolean {
    if (data.charCodeAt(0) !== OPEN_OBJECT) return false
    return latest.input === undefined || OUTPUT_MEMBERS.some(member => data.includes(member))
  }

  function noteJob(json: unknown): void {
    const whole = objectOf(json)
    const { object, id, status } = objectOf(whole?.response) ?? whole ?? {}
    // Some servers leave the type out.
    const isJob = object === undefined || object === 'response' || object === 'batch'
    if (!isJob || typeof id !== 'string' || id.length > MAX_ID_LENGTH || typeof status !== 'string') return
    job = { id, isOver: FINISHED.has(status) }
  }

  return {
    noteJob,
    job: () => (name === 'openai' ? job : undefined),
    read(json) {
      const object = objectOf(json)
      noteJob(object)
      if (!object) return true
      const found = formatOf(object, name)
      const usage = found.usageOf(object)
      if (!usage) return true
      format = found
      const fields = Object.entries(format.fieldsOf(usage)).filter(
        ([, value]) => value !== undefined && value !== null,
      )
      // Not the valid fields alone: they would be less than what the request has cost.
      const isValid = fields.every(([, value]) => isTokenCount(value))
      isBroken = !isValid
      if (!isValid) return false
      Object.assign(latest, Object.fromEntries(fields))
      const choice = firstChoice(object)
      if (choice?.usage === usage) {
        outputs.set(choice.index, latest.output ?? 0)
        latest.output = [...outputs.values()].reduce((sum, output) => sum + output)
      }
      deltas = 0
      isLast = format.isLast(object) && latest.input !== undefined
      return true
    },
    noteEvent(name, data) {
      if (name === undefined ? isOutput(data) : isOutputEvent(name)) deltas += 1
    },
    tokens() {
      const { input, output = 0, cached = 0, cacheWrite = 0 } = latest
      if (input === undefined) return undefined
      return {
        input: format.inputHasCached ? Math.max(input - cached, 0) : input,
        output: output + deltas,
        cached: format.inputHasCached ? Math.min(cached, input) : cached,
        cacheWrite,
      }
    },
    counted: () => (latest.input === undefined && deltas > 0 ? { ...NO_TOKENS, output: deltas } : undefined),
    isFinal: hasEnded =>
      (isLast || (hasEnded && latest.input !== undefined && deltas === 0)) &&
      !isBroken &&
      (job?.isOver ?? true),
  }
}
