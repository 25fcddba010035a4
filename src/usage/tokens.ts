/** Tokens of a request to a language model, and the amount of a unit that they are: a linear formula. */

/** Tokens of one request, by kind. No token is in two kinds, so the sum of the kinds is all tokens. */
export interface Tokens {
  /** Of the prompt, without those of `cached` and `cacheWrite`. */
  input: number
  /** Of the completion, including those that the model thought. */
  output: number
  /** Of the prompt, read from the cache of the model. */
  cached: number
  /** Of the prompt, written to the cache of the model (Anthropic). */
  cacheWrite: number
}

/** Units per token of each kind, with at most six decimals. */
export interface Weights {
  /** Default `1`. */
  input?: number | undefined
  /** Default `1`. */
  output?: number | undefined
  /** Default: that of `input`. */
  cached?: number | undefined
  /** Default: that of `input`. */
  cacheWrite?: number | undefined
}

/** The largest amount of a unit that one request can cost, and the largest number of tokens of one kind. */
export const MAX_AMOUNT = 1e9

export const NO_TOKENS: Readonly<Tokens> = { input: 0, output: 0, cached: 0, cacheWrite: 0 }

/** The decimals of a weight, as a power of ten. */
const SCALE = 1e6

/**
 * The amount of a unit, in exact arithmetic: with a weight of `0.1`, 30 tokens are 3 units. Without weights, all tokens.
 * @returns a whole number, rounded up, at most `MAX_AMOUNT`
 */
export function weigh(tokens: Readonly<Tokens>, weights: Weights = {}): number {
  const { input = 1, output = 1, cached = input, cacheWrite = input } = weights
  const scaled =
    scaledProduct(tokens.input, input) +
    scaledProduct(tokens.output, output) +
    scaledProduct(tokens.cached, cached) +
    scaledProduct(tokens.cacheWrite, cacheWrite)
  const amount = (scaled + BigInt(SCALE - 1)) / BigInt(SCALE)
  return Math.min(Number(amount), MAX_AMOUNT)
}

const scaledProduct = (tokens: number, weight: number) => BigInt(tokens) * BigInt(Math.round(weight * SCALE))
