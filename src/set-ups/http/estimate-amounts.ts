/**
 * Estimates what requests to a language model will cost, from their bodies, and asks the origin for usage in streams. A Worker whose
 * units need neither does not carry this file.
 */
import type { GatewayRule } from '../../config/compile-rule.ts'
import type { LlmEstimate, Unit, Units } from '../../config/units-shape.ts'
import { readLlmRequest } from '../../usage/llm-request.ts'
import { type Tokens, type Weights, weigh } from '../../usage/tokens.ts'
import type { Amounts } from '../../usage/usage.ts'

export interface EstimatedRequest {
  /** Forward this request. */
  request: Request
  /** By unit. A unit that is left out costs its fixed estimate. */
  amounts: Amounts
  /** The request asks the origin for usage that the client must not get. */
  hidesUsage: boolean
  /** The client has broken off the body, so the request must not be forwarded: workerd can end such a body as if it were whole. */
  isBroken: boolean
  /** Is aborted when the client breaks off the rest of its body. */
  bodyFailed?: AbortSignal | undefined
}

/**
 * Estimates a request. Never rejects.
 *
 * @param rules that match the request
 * @param known amounts that are not estimated
 */
export type EstimateAmounts = (
  request: Request,
  rules: readonly GatewayRule[],
  known: Amounts,
) => Promise<EstimatedRequest>

export function createEstimateAmounts(units: Units): EstimateAmounts {
  return async (request, rules, known) => {
    const counted = [...new Set(rules.map(({ unit }) => unit))]
    const includeUsage = counted.some(name => units.get(name)?.includesUsage)
    const estimated = counted.filter(
      name => typeof units.get(name)?.estimate === 'object' && !Object.hasOwn(known, name),
    )
    const amounts: Record<string, number> = { ...known }
    let result: EstimatedRequest = { request, amounts, hidesUsage: false, isBroken: false }

    async function read(settings: LlmEstimate): Promise<Tokens> {
      const { request, tokens, how, hidesUsage, bodyFailed } = await readLlmRequest(result.request, {
        ...settings,
        includeUsage,
      })
      result = {
        ...{ request, amounts, hidesUsage: hidesUsage || result.hidesUsage },
        isBroken: how === 'broken' || result.isBroken,
        bodyFailed: bodyFailed ?? result.bodyFailed,
      }
      return tokens
    }

    // Nearly always one set of settings, so that the body is read once.
    const bySettings = Map.groupBy(estimated, name => JSON.stringify(units.get(name)!.estimate))
    for (const [settings, names] of bySettings) {
      const tokens = await read(JSON.parse(settings))
      // At least one unit: a request that reserves nothing is not settled.
      for (const name of names) amounts[name] = Math.max(1, weigh(tokens, weightsOf(units.get(name)!)))
    }
    if (includeUsage && bySettings.size === 0) await read({})
    return result
  }
}

const weightsOf = ({ actual }: Unit): Weights | undefined =>
  typeof actual === 'object' && 'usage' in actual ? actual.weights : undefined
