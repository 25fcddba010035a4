/** The schema of `units`: what rules can count besides requests. Messages: see rule-schema.ts. */
import * as v from 'valibot'
import { USAGE_FORMATS } from '../../usage/usage.ts'
import { duration, flag, headerName, name, oneOf, record, settings, text, units } from './values.ts'

export type UnitInput = v.InferInput<typeof unit>

/** The unit that a rule counts. */
export const ruleUnit = name('name of a unit')

const ESTIMATE = "is not an estimate. Write a whole number, 'llm' or { maxOutput: 4000 }."

const llmEstimate = settings(
  {
    /** The most tokens of the response that are reserved, whatever maximum the request sets. Default: the maximum of the request. */
    maxOutput: v.optional(units(1)),
    /** The tokens of the response if the request sets no maximum. Default: 1000 tokens. */
    defaultOutput: v.optional(units(0)),
    /** The bytes of a request body that are read before the decision. The rest of a larger one is read while it passes. Default: 256 kB. */
    maxBytes: v.optional(units(1, 10e6)),
  },
  ESTIMATE,
)

const llm = v.literal('llm', ESTIMATE)

const WEIGHT = 'is not a weight. Write a number from 0 to 1000000.'

const ROUNDED =
  'is too small: weights are rounded to six decimals. Count a smaller unit, such as millionths of a dollar.'

/** Rounding (src/usage/tokens.ts) may change a weight by a hundredth. */
const isExact = (weight: number) =>
  Math.abs(Math.round(weight * 1e6) - weight * 1e6) <= Math.abs(weight) * 1e4

const weight = v.pipe(
  v.number(WEIGHT),
  v.minValue(0, WEIGHT),
  v.maxValue(1e6, WEIGHT),
  v.check(isExact, ROUNDED),
)

const ACTUAL =
  "is not a source of amounts. Write { usage: 'openai' }, { header: 'x-cost' }, { json: '/usage/total_tokens' }, 'bytes', 'ms' or 'hook'."

const POINTER = "is not a JSON pointer. Write it like '/usage/total_tokens'."

const fields = settings(
  {
    /** The tokens that the response reports in the format of this API, in JSON or in an event stream. Default: none. */
    usage: v.optional(oneOf(USAGE_FORMATS, 'is not a format of usage')),
    /**
     * With `usage`: units per token, as in `{ input: 0.15, output: 0.6 }`, also for the estimate `'llm'`. Default: each token is one
     * unit.
     */
    weights: v.optional(
      settings(
        {
          /** Of the prompt. Default: one unit. */
          input: v.optional(weight),
          /** Of the response. Default: one unit. */
          output: v.optional(weight),
          /** Of the part of the prompt that the model reads from its cache. Default: that of `input`. */
          cached: v.optional(weight),
          /** Of the part of the prompt that the model writes to its cache. Default: that of `input`. */
          cacheWrite: v.optional(weight),
        },
        'is not an object. Write it like { output: 5 }.',
      ),
    ),
    /**
     * With `usage: 'openai'`: adds `stream_options.include_usage` to streamed completions, and removes the chunk with the usage from
     * the response (default `false`). Without that option, such a stream reports no usage.
     */
    includeUsage: v.optional(flag),
    /**
     * With `usage`: the shape of the gateway's own replies, such as a 429, to requests that cost this unit (default `'native'`):
     * - `'native'`: that of errors of this API, so that its SDKs show the sentence. Status and headers are the same.
     * - `'problem'`: problem details (RFC 9457).
     */
    errors: v.optional(oneOf(['native', 'problem'], 'is not a shape of errors')),
    /** A header of the response, with a whole number. Default: none. */
    header: v.optional(headerName),
    /** With `header`: the client gets the header too (default `false`). */
    keep: v.optional(flag),
    /** A JSON pointer (RFC 6901) to a number in the response, as in `'/usage/total_tokens'`. Default: none. */
    json: v.optional(v.pipe(text(POINTER), v.regex(/^(\/([^~/]|~[01])*)+$/, POINTER))),
  },
  ACTUAL,
)

const words = v.picklist(['bytes', 'ms', 'hook'], ACTUAL)

const isObject = (input: unknown) => typeof input === 'object' && input !== null && !Array.isArray(input)

const unit = settings(
  {
    /**
     * The amount that is reserved for a request: a number, or `'llm'`, which reads it from the body of a request to a language model:
     * the prompt (bytes / 4, and pictures by their sizes), and its maximum of output tokens. The hook `amounts` replaces it. Default: none.
     */
    estimate: v.optional(
      v.lazy(input =>
        isObject(input)
          ? llmEstimate
          : typeof input === 'number'
            ? units(1)
            : input === undefined
              ? v.union([units(1), llm, llmEstimate])
              : llm,
      ),
    ),
    /**
     * With the estimate `'llm'`: what a request costs whose body is not JSON, such as a file or a form. Default: none, such a request is
     * refused (415).
     */
    estimateUnreadable: v.optional(units(1)),
    /**
     * Where the gateway, a guard or a middleware finds what a request has cost: one of `usage`, `header` and `json`, the `'bytes'` of
     * the response body, its duration in `'ms'`, or the `'hook'` `actual`. Limits by name have `settle` instead. Default: a
     * request costs its estimate.
     */
    actual: v.optional(
      v.lazy(input => (isObject(input) ? fields : input === undefined ? v.union([words, fields]) : words)),
    ),
    /** How long a reservation waits for the actual amount (default `'10m'`). A response that takes longer renews it. */
    ttl: v.optional(duration(10e6, 86400e6, "from '10s' to '1d'")),
    /** What becomes of a reservation without an actual amount after `ttl`: `keep` (default), it stays spent, or `release`. */
    onUnsettled: v.optional(oneOf(['keep', 'release'], 'is not a way to end a reservation')),
    /** What becomes of an estimate above the whole limit of a rule: `clamp` (default), it reserves the whole limit, or `refuse`. */
    aboveLimit: v.optional(oneOf(['clamp', 'refuse'], 'is not a way to treat an estimate above the limit')),
  },
  "is not a unit. Write it like { estimate: 2000, actual: { json: '/usage/total_tokens' } }.",
)

export const unitsOfConfig = record(
  name('name of a unit'),
  unit,
  "is not an object. Write it like { tokens: { estimate: 2000, actual: { json: '/usage/total_tokens' } } }.",
)
