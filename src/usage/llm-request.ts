/** Estimates how many tokens a request to a language model will take, from its body, which goes on to the origin. */
import { SYSTEM_TIMER, type Timer } from '../clock.ts'
import { createUsageAsker, MAX_ADDED, type UsageAsker } from './ask-for-usage.ts'
import type { BodyHold } from './body-room.ts'
import { type DeclaredType, declaredTypeOf, foreignCharsetOf, isWideText } from './body-type.ts'
import { concat } from './concat.ts'
import { LlmScan, type OutputSettings } from './llm-scan.ts'
import { type Beginning, readBeginning, resumeBody } from './read-body.ts'
import { NO_TOKENS, type Tokens } from './tokens.ts'
import { lengthOf, withBody } from './with-body.ts'

export interface LlmRequestSettings {
  /** So much of a body is read before the request is decided (bytes, default 256,000). The rest is read while it passes. */
  maxBytes?: number | undefined
  /** Asks for the usage of completions that stream (default `false`). */
  includeUsage?: boolean | undefined
  /** The room for what is read. Default: unbounded. */
  hold?: BodyHold
  /** Ends the reading of a slow body; tests pass their own. */
  timer?: Timer
}

export interface LlmRequest {
  /** Forward this request. It has the same body as the given one, unless `hidesUsage`. */
  request: Request
  /**
   * - `read`: the whole body was read.
   * - `passing`: its beginning was read. The rest is read while it passes.
   * - `unread`: something else has read it, or will.
   * - `no-body`: the request has no body.
   * - `broken`: the client broke it off.
   * - `refused`: see `refusal`.
   */
  how: 'read' | 'passing' | 'unread' | 'no-body' | 'broken' | 'refused'
  /** What it is estimated to take, as far as it is known now. Call again when a body has passed. */
  tokens(settings?: OutputSettings): Tokens
  /** The body is not JSON, so that the tokens say nothing. */
  isUnreadable(): boolean
  /** Why the request must not be forwarded, or was broken off while its body passed. */
  refusal(): BodyRefusal | undefined
  /** The request asks the origin for a chunk that the client must not get; as far as it is known now. */
  hidesUsage(): boolean
  /** It may still turn out that `hidesUsage`. */
  mayHideUsage: boolean
  /** Is aborted when the client breaks off the rest of a body that passes. Absent: the platform notices it. */
  bodyFailed?: AbortSignal
}

/** `slow`: it did not arrive in time. `full`: there is no room to read it. Otherwise: why the body cannot be read. */
export type BodyRefusal = { reason: 'slow' | 'full' } | { reason: 'not-json'; detail: string }

const DEFAULT_MAX_BYTES = 256_000

const UNBOUNDED: BodyHold = { isKnown: true, take: () => true, give() {} }

/** Estimates a request. Never rejects. */
export async function readLlmRequest(
  request: Request,
  settings: LlmRequestSettings = {},
): Promise<LlmRequest> {
  const { maxBytes = DEFAULT_MAX_BYTES, hold = UNBOUNDED, timer = SYSTEM_TIMER } = settings
  const type = request.headers.get('content-type')
  const declared = declaredTypeOf(type)
  const length = lengthOf(request)
  const scan = new LlmScan()
  const unread = (): LlmRequest => ({
    ...resultOf(request, 'unread', scan),
    // A body of unknown length may have any.
    tokens: output => scan.tokens(output, length || maxBytes),
    isUnreadable: () => declared === 'multipart',
  })
  // Express passes on the request without its body.
  if (!request.body && (length > 0 || request.headers.has('transfer-encoding'))) return unread()
  if (!request.body) return withoutBody(request, scan)
  // A compressed body can be JSON as well, of another length.
  const coding = request.headers.get('content-encoding')
  if (coding !== null && coding.toLowerCase() !== 'identity' && declared === 'json')
    return refused(request, scan, { reason: 'not-json', detail: 'has a Content-Encoding' })
  const charset = foreignCharsetOf(type)
  if (charset !== undefined && declared === 'json')
    return refused(request, scan, { reason: 'not-json', detail: `is declared as ${charset.slice(0, 20)}` })
  try {
    // Requests of these methods cannot be created with a body, so they keep theirs.
    const keepsBody = request.method === 'GET' || request.method === 'HEAD'
    const body = (keepsBody ? request.clone().body : request.body) as ReadableStream<Uint8Array>
    const reader = body.getReader()
    const isOpen = () => scan.problem === undefined && (declared === 'json' || scan.canBeObject)
    const beginning = await readBeginning(reader, {
      ...{ maxBytes, timer, hold },
      see(chunk) {
        scan.feed(chunk)
        return isOpen()
      },
    })
    const { how, chunks } = beginning
    if (how === undefined) scan.finish()
    const isEmpty = how === undefined && scan.bytes === 0
    const isRefused = declared === 'json' && scan.problem !== undefined && !isEmpty
    if (keepsBody || isRefused || how === 'too-slow' || how === 'no-room' || how === 'broken')
      reader.cancel().catch(() => {})
    if (how === 'too-slow') return refused(request, scan, { reason: 'slow' })
    if (how === 'no-room') return refused(request, scan, { reason: 'full' })
    if (how === 'broken') return resultOf(request, 'broken', scan)
    if (isRefused) return refused(request, scan, { reason: 'not-json', detail: problemOf(scan, chunks) })

    // In workerd, a request with Content-Length: 0 has a body without bytes.
    if (isEmpty) return withoutBody(keepsBody ? request : withBody(request, new Uint8Array()), scan)
    const passing: PassingBody = { request, declared, length, scan, isOpen, reader, beginning, hold, timer }
    if (keepsBody) {
      const rest = how === undefined ? 0 : Math.max(0, length - scan.bytes)
      return {
        ...resultOf(request, 'read', scan),
        tokens: output => scan.tokens(output, rest),
        isUnreadable: () => !isOpen(),
      }
    }
    const isWhole = how === undefined
    const asker =
      settings.includeUsage && isOpen()
        ? createUsageAsker(isEnd => asks(request, scan, isWhole || isEnd))
        : undefined
    if (how !== undefined) return passOn(passing, declared === 'json' ? asker : undefined)
    const text = concat(chunks)
    const edited = asker?.edit(text) ?? [text]
    return {
      ...resultOf(withBody(request, edited.length === 1 ? text : concat(edited)), 'read', scan),
      isUnreadable: () => !isOpen(),
      hidesUsage: () => edited.length > 1,
    }
  } catch {
    return unread()
  }
}

const resultOf = (request: Request, how: LlmRequest['how'], scan: LlmScan): LlmRequest => ({
  ...{ request, how, mayHideUsage: false },
  tokens: output => scan.tokens(output),
  isUnreadable: () => false,
  refusal: () => undefined,
  hidesUsage: () => false,
})

const withoutBody = (request: Request, scan: LlmScan): LlmRequest => ({
  ...resultOf(request, 'no-body', scan),
  tokens: () => NO_TOKENS,
})

const refused = (request: Request, scan: LlmScan, refusal: BodyRefusal): LlmRequest => ({
  ...resultOf(request, 'refused', scan),
  refusal: () => refusal,
})

/** What is wrong with a body, as the end of a sentence. */
function problemOf({ problem = '' }: LlmScan, [first = new Uint8Array()]: Uint8Array[]): string {
  if (isWideText(first)) return 'is UTF-16 or UTF-32'
  return problem
}

/**
 * Whether the request has to ask for its usage: if it may stream, and is not certainly one of another API. An origin may have read a member that
 * only comes later, so before the end the doubt counts.
 */
function asks({ url }: Request, { streams, kinds }: LlmScan, isEnd: boolean): boolean {
  const isCompletion =
    kinds.has('messages') || kinds.has('prompt') || new URL(url).pathname.endsWith('/completions')
  return isEnd ? streams && isCompletion : isCompletion || !kinds.has('input')
}

interface PassingBody {
  request: Request
  declared: DeclaredType
  length: number
  scan: LlmScan
  /** Nothing that was read is wrong. */
  isOpen(): boolean
  reader: ReadableStreamDefaultReader<Uint8Array>
  beginning: Beginning
  hold: BodyHold
  timer: Timer
}

/** Passes on a body of which the beginning was read, and reads the rest on its way. */
function passOn(passing: PassingBody, asker: UsageAsker | undefined): LlmRequest {
  const { request, declared, length, scan, isOpen, reader, beginning, hold, timer } = passing
  const sentLength = length > 0 && asker ? length + MAX_ADDED : length
  let isWhole = false
  let sent = 0
  let refusal: BodyRefusal | undefined

  function check(): void {
    if (declared !== 'json') return
    const detail = scan.problem ?? (sent > scan.bytes + MAX_ADDED ? 'has too many stream_options' : undefined)
    if (detail === undefined) return
    refusal = { reason: 'not-json', detail }
    throw new Error(`The body ${detail}.`)
  }

  const { body, failed } = resumeBody(
    reader,
    beginning,
    { timer, hold },
    {
      pass(chunk, isRest) {
        if (isRest && isOpen()) scan.feed(chunk)
        else if (isRest) scan.bytes += chunk.byteLength
        const out = asker?.edit(chunk) ?? [chunk]
        for (const { byteLength } of out) sent += byteLength
        check()
        return out
      },
      end() {
        isWhole = true
        scan.finish()
        check()
        // White space at the end of JSON means nothing.
        const missing = length > 0 && asker ? sentLength - sent : 0
        return [new Uint8Array(Math.max(0, missing)).fill(SPACE)]
      },
    },
  )
  return {
    ...resultOf(withBody(request, body, sentLength), 'passing', scan),
    tokens: output => scan.tokens(output, isWhole ? 0 : Math.max(0, length - scan.bytes)),
    isUnreadable: () => !isOpen(),
    refusal: () => refusal,
    hidesUsage: () => asker?.hasAsked() ?? false,
    mayHideUsage: asker !== undefined,
    bodyFailed: failed,
  }
}

const SPACE = 32
