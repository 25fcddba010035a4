/**
 * What this folder has: amounts of units, as estimates from a request (llm-request.ts) and as actual amounts from its reply
 * (usage-reader.ts). It knows no store, no rules and no set-up. Nothing here throws into the path of a request: what cannot be
 * read is a `Problem`, for the caller to log.
 */
import type { Tokens, Weights } from './tokens.ts'

/**
 * The formats of language models: that of OpenAI (chat completions, responses, completions, embeddings), messages of Anthropic, or contents
 * of Gemini.
 */
export const USAGE_FORMATS = ['openai', 'anthropic', 'gemini'] as const
export type UsageFormat = (typeof USAGE_FORMATS)[number]

/** Where the actual amount of a unit comes from. */
export type AmountSource =
  /** The tokens that a JSON body or an event stream reports. */
  | { usage: UsageFormat; weights?: Weights | undefined }
  /** A header of the reply, a whole number. It is removed from the reply unless `keep` is true. */
  | { header: string; keep?: boolean | undefined }
  /** A JSON pointer (RFC 6901) to a number in the body of the reply; decimals are rounded up. */
  | { json: string }
  /** 1 if the reply has one of these statuses, else 0. */
  | { status: readonly number[] }

/** The source of each unit, by the unit's name. */
export type AmountSources = Readonly<Record<string, AmountSource>>

/** Whole numbers from 0 to `MAX_AMOUNT`, by the name of their unit. */
export type Amounts = Readonly<Record<string, number>>

/** How a reply ended: as in `Ending` of the engine. */
export type ReplyEnding = 'complete' | 'cancelled' | 'failed'

/** What has kept an amount from being known. Log it once for each reason; the estimate stays. */
export interface Problem {
  /**
   * - `no-usage`: the body ended, and had no usage or no number where the pointer points.
   * - `bad-amount`: a header or the pointer has something else than a number, or one that is negative or above `MAX_AMOUNT`.
   * - `not-json`: the body is not JSON.
   * - `encoding`: the body has an encoding that is not read, such as br.
   * - `unreadable`: the body could not be decoded.
   * - `not-hidden`: the client got the usage chunk that it has not asked for.
   * - `hook`: the hook failed, or returned something else than amounts.
   */
  reason: 'no-usage' | 'bad-amount' | 'not-json' | 'encoding' | 'unreadable' | 'not-hidden' | 'hook'
  /** Absent: it concerns all units that are read from the body. */
  unit?: string
  /** For a log line. Has no text of a body. */
  detail: string
}

/** A response or a batch of OpenAI's API that a model works on after the reply to its creation. */
export interface Job {
  id: string
  /** Whether it has ended, so that its usage is final. */
  isOver: boolean
}

/** What a reply has cost. */
export interface UsageReport {
  /** By unit. A unit that is not here is unknown: its estimate stays. */
  amounts: Amounts
  /** What a source with `usage` has found in the body. */
  tokens?: Tokens
  ending: ReplyEnding
  /**
   * Not all usage arrived, because the reply broke off, or does not report it: amounts that are read from the body are what was counted. If
   * the estimate is more, it stays.
   */
  isPartial: boolean
  problems: readonly Problem[]
  /** The job that the reply is about. */
  job?: Job | undefined
}

/** The head of a reply, of any framework. */
export interface ReplyHead {
  status: number
  headers: { get(name: string): string | null }
}

/**
 * A hook that knows better than the sources. Units that it leaves out keep the amounts of the report.
 * @param usage what the sources have found
 * @param response the head of the reply
 */
export type ActualHook = (
  usage: Omit<UsageReport, 'problems'>,
  response: ReplyHead,
) => Amounts | undefined | Promise<Amounts | undefined>

/**
 * Takes part in passing on the body of a reply. Call for each chunk: send `pass(chunk)`, then `see(chunk)`, and await it before
 * the next chunk is read. When the body has ended, send `rest()`. None of them throws.
 */
export interface BodyTap {
  /** Whether `pass` can return other bytes than it gets; then the length of the body is not known. */
  changesBytes: boolean
  /** The bytes to send for this chunk, often none if `changesBytes`. */
  pass(chunk: Uint8Array): Uint8Array
  /** Bytes that were held back, of an event without its end. */
  rest(): Uint8Array
  /** Reads a chunk that was sent. Does not keep it. Returns a promise only while it decompresses. */
  see(chunk: Uint8Array): Promise<void> | undefined
}

/** Reads the usage of one reply. */
export interface UsageReader extends BodyTap {
  /** Whether the body has to be seen. If not, pass it on as it is. */
  readsBody: boolean
  /** Removes headers that the client must not get. */
  cleanHeaders(headers: { delete(name: string): void }): void
  /** Ends the reading. Only the first call has an effect; all return the same report. Never rejects. */
  end(ending: ReplyEnding): Promise<UsageReport>
}
