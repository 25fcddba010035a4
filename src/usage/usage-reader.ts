/** Reads what a request has cost from its reply, while the reply passes. */

import { readerOfEither, readerOfEvents, usagesOf } from './body-readers.ts'
import { type CopyReader, createGzipReader, encodingOf } from './encodings.ts'
import { amountsOfHead, badAmount, saysNothing, toAmount } from './head-amounts.ts'
import { KeptBytes } from './kept-bytes.ts'
import { MAX_AMOUNT, weigh } from './tokens.ts'
import type {
  AmountSource,
  AmountSources,
  Problem,
  ReplyEnding,
  ReplyHead,
  UsageReader,
  UsageReport,
} from './usage.ts'
import { createUsageChunkFilter } from './usage-chunk.ts'
import { asUtf8 } from './utf16.ts'

export interface UsageReaderOptions {
  /** The request was edited to ask for usage (`hidesUsage` of `LlmRequest`), so the client does not get the chunk that has only usage. */
  hidesUsage?: boolean | undefined
  /** Of a larger event, only its usage is read (characters, default 1,000,000). */
  maxEventBytes?: number | undefined
  /** The platform has decoded the body, whatever Content-Encoding says. */
  isDecoded?: boolean | undefined
}

const DEFAULT_MAX_EVENT_BYTES = 1_000_000

/** Output of the model in an error: Groq replies with it to a call of a tool, or JSON, that does not have the form that was asked for. */
const FAILED_OUTPUT = /"failed_generation"\s*:\s*"[^"]/
/** So much of an error is searched for it. */
const BEGINNING_BYTES = 8192

const NOTHING = new Uint8Array()

/**
 * Creates the reader of one reply.
 *
 * A reply that says that nothing was produced costs 0: by its head (`saysNothing`), or as an event stream that is only an error; unless it
 * reports something else, or has the output that was refused at its end.
 */
export function createUsageReader(
  sources: AmountSources,
  head: ReplyHead,
  { hidesUsage = false, maxEventBytes = DEFAULT_MAX_EVENT_BYTES, isDecoded = false }: UsageReaderOptions = {},
): UsageReader {
  const problems: Problem[] = []
  const addProblem = (problem: Problem) => {
    const isNew = !problems.some(({ reason, unit }) => reason === problem.reason && unit === problem.unit)
    if (isNew) problems.push(problem)
  }
  const fromHead = amountsOfHead(sources, head)
  fromHead.problems.forEach(addProblem)
  const inBody = Object.entries(sources).filter(([, source]) => 'usage' in source || 'json' in source)

  const encoding = isDecoded ? 'identity' : encodingOf(head.headers.get('content-encoding'))
  const isStream = /^text\/event-stream\b/i.test(head.headers.get('content-type') ?? '')
  const readsBody = inBody.length > 0 && encoding !== 'other'
  if (inBody.length > 0 && encoding === 'other') {
    addProblem({
      reason: 'encoding',
      detail: 'The Content-Encoding of a reply is not read. Let the origin send gzip, or no encoding.',
    })
  }

  const usages = usagesOf(inBody)
  const onBadTokens = () =>
    addProblem({
      reason: 'bad-amount',
      detail: `The usage of a reply has a field that is not a whole number from 0 to ${MAX_AMOUNT}. All of it is ignored.`,
    })
  const create = isStream ? readerOfEvents : readerOfEither
  const body = create(inBody, usages, maxEventBytes, onBadTokens)
  const isError = saysNothing(head)
  const beginning = new KeptBytes()
  const feed = asUtf8(bytes => {
    if (isError && beginning.length < BEGINNING_BYTES) beginning.add(bytes.subarray(0, BEGINNING_BYTES))
    body.feed(bytes)
  })
  const copy: CopyReader | undefined = readsBody && encoding === 'gzip' ? createGzipReader(feed) : undefined
  const changesBytes = hidesUsage && isStream && encoding === 'identity'
  const filter = changesBytes ? createUsageChunkFilter(maxEventBytes) : undefined
  if (hidesUsage && isStream && !filter) {
    addProblem({
      reason: 'not-hidden',
      detail:
        'A compressed event stream was passed on with the chunk that has only usage. Let the origin send it without compression.',
    })
  }

  let ended: Promise<UsageReport> | undefined

  async function report(ending: ReplyEnding): Promise<UsageReport> {
    try {
      await copy?.end()
      body.end()
    } catch {
      addProblem(UNREADABLE)
    }
    const refused = isError && !FAILED_OUTPUT.test(new TextDecoder().decode(beginning.take()))
    // Some servers send an error, and go on.
    const wentOn = [...usages.values()].some(usage => usage.tokens() ?? usage.counted())
    const hasOutput = !refused && (wentOn || !body.beganWithError())
    const [job] = [...usages.values()].flatMap(usage => usage.job() ?? [])
    const amounts: Record<string, number> = { ...fromHead.amounts }
    for (const [unit, source] of inBody) {
      const amount = amountOf(unit, source)
      if (amount !== undefined) amounts[unit] = amount
    }
    if (!hasOutput) {
      for (const unit of Object.keys(sources)) amounts[unit] ??= 0
    } else if (readsBody && ending === 'complete' && (job?.isOver ?? true)) {
      noteMissing(amounts)
    }
    for (const [unit, source] of inBody) {
      const counted = hasOutput && 'usage' in source && usages.get(source.usage)?.counted()
      if (counted) amounts[unit] ??= weigh(counted, source.weights)
    }
    const [tokens] = [...usages.values()].flatMap(usage => usage.tokens() ?? [])
    return {
      amounts,
      ...(tokens && { tokens }),
      ...(job && !isError && { job }),
      ending,
      isPartial: hasOutput && readsBody && !body.isWhole(ending === 'complete'),
      problems,
    }
  }

  function amountOf(unit: string, source: AmountSource): number | undefined {
    if ('usage' in source) {
      const tokens = usages.get(source.usage)?.tokens()
      return tokens && weigh(tokens, source.weights)
    }
    if (!('json' in source)) return undefined
    const value = body.valueOf(unit)
    if (value === undefined || value === null) return undefined
    const amount = toAmount(value)
    if (amount === undefined)
      addProblem(badAmount(unit, `The value at ${source.json} in the body of a reply`))
    return amount
  }

  /** Says why units are unknown though the body has ended. */
  function noteMissing(amounts: Readonly<Record<string, number>>): void {
    const missing = inBody.filter(([unit]) => amounts[unit] === undefined)
    if (missing.length === 0) return
    if (copy && !copy.isReadable()) addProblem(UNREADABLE)
    else if (!body.isValid()) {
      addProblem({ reason: 'not-json', detail: 'The body of a reply is neither JSON nor an event stream.' })
    } else {
      for (const [unit, source] of missing) {
        if (problems.some(problem => problem.reason === 'bad-amount' && problem.unit === unit)) continue
        addProblem({ reason: 'no-usage', unit, detail: missingDetail(source) })
      }
    }
  }

  function look(chunk: Uint8Array): Promise<void> | undefined {
    if (copy) return copy.feed(chunk)
    feed(chunk)
    return undefined
  }

  return {
    readsBody: readsBody || changesBytes,
    changesBytes,
    cleanHeaders(headers) {
      for (const source of Object.values(sources)) {
        if ('header' in source && !source.keep) headers.delete(source.header)
      }
      if (changesBytes) headers.delete('content-length')
    },
    pass: chunk => (filter ? filter.pass(chunk) : chunk),
    rest: () => filter?.rest() ?? NOTHING,
    see(chunk) {
      if (!readsBody || ended) return undefined
      try {
        return look(chunk)
      } catch {
        addProblem(UNREADABLE)
        return undefined
      }
    },
    end(ending) {
      ended ??= report(ending)
      return ended
    },
  }
}

const UNREADABLE: Problem = { reason: 'unreadable', detail: 'The body of a reply could not be decoded.' }

function missingDetail(source: AmountSource): string {
  return 'json' in source
    ? `A reply ended without a value at ${source.json} in its body.`
    : 'A reply ended without usage. OpenAI sends it in streams of chat completions only if stream_options.include_usage is true.'
}
