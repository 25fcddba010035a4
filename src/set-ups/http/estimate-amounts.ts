/**
 * Estimates what requests to a language model will cost, from their bodies, and asks the origin for usage in streams. A Worker whose
 * units need neither does not carry this file.
 */
import type { GatewayRule } from '../../config/compile-rule.ts'
import type { Unit, Units } from '../../config/units-shape.ts'
import { createBodyRoom } from '../../usage/body-room.ts'
import { type BodyRefusal, type LlmRequest, readLlmRequest } from '../../usage/llm-request.ts'
import { type Weights, weigh } from '../../usage/tokens.ts'
import type { Amounts } from '../../usage/usage.ts'
import { BODY_TOO_MANY, BODY_TOO_SLOW } from './body-refusals.ts'
import type { Caller } from './caller.ts'
import { type EstimatedRequest, withoutBody } from './estimated-request.ts'
import type { Problem } from './problem.ts'

/**
 * Estimates a request. Never rejects.
 *
 * @param rules that match the request
 * @param known amounts that are not estimated
 */
export type EstimateAmounts = (
  request: Request,
  caller: Caller,
  rules: readonly GatewayRule[],
  known: Amounts,
) => Promise<EstimatedRequest>

export function createEstimateAmounts(units: Units): EstimateAmounts {
  const room = createBodyRoom()

  return async (request, { credential, addressIdentity }, rules, known) => {
    const counted = [...new Set(rules.map(({ unit }) => unit))].flatMap(name => units.get(name) ?? [])
    const includeUsage = counted.some(({ includesUsage }) => includesUsage)
    const estimated = rules.flatMap(({ unit: name }): [string, Unit][] => {
      const unit = units.get(name)
      return typeof unit?.estimate === 'object' && !Object.hasOwn(known, name) ? [[name, unit]] : []
    })
    if (!includeUsage && estimated.length === 0) return withoutBody(request, known)
    const caller = credential?.digest ?? addressIdentity
    const hold = room.open(caller, credential?.isVerified ?? false, addressIdentity)
    const read = await readLlmRequest(request, {
      ...{ includeUsage, hold },
      maxBytes: Math.max(0, ...estimated.map(([, unit]) => maxBytesOf(unit))) || undefined,
    })
    return {
      ...{ request: read.request, hidesUsage: read.hidesUsage, mayHideUsage: read.mayHideUsage },
      ...{ isBroken: read.how === 'broken', bodyFailed: read.bodyFailed },
      amounts: () => ({
        ...known,
        ...Object.fromEntries(estimated.map(([name, unit]) => [name, amountOf(read, unit)])),
      }),
      refusal: () => refusalOf(read, estimated),
      rememberCaller: () => room.remember(caller),
      release: () => hold.give(),
    }
  }
}

const DEFAULT_MAX_BYTES = 256_000

const maxBytesOf = ({ estimate }: Unit) =>
  (typeof estimate === 'object' && estimate.maxBytes) || DEFAULT_MAX_BYTES

/** At least one unit: a request that reserves nothing is not settled. */
function amountOf(read: LlmRequest, unit: Unit): number {
  if (read.isUnreadable() && unit.estimateUnreadable !== undefined) return unit.estimateUnreadable
  const settings = typeof unit.estimate === 'object' ? unit.estimate : {}
  return Math.max(1, weigh(read.tokens(settings), weightsOf(unit)))
}

const weightsOf = ({ actual }: Unit): Weights | undefined =>
  typeof actual === 'object' && 'usage' in actual ? actual.weights : undefined

function refusalOf(read: LlmRequest, estimated: readonly [string, Unit][]): Problem | undefined {
  const refusal = read.refusal()
  if (refusal) return problemOf(refusal)
  const hasNoPrice = estimated.some(([, { estimateUnreadable }]) => estimateUnreadable === undefined)
  return hasNoPrice && read.isUnreadable() ? NO_PRICE : undefined
}

function problemOf(refusal: BodyRefusal): Problem {
  switch (refusal.reason) {
    case 'slow':
      return BODY_TOO_SLOW
    case 'full':
      return BODY_TOO_MANY
    case 'not-json':
      return {
        ...{ status: 400, title: 'Bad Request' },
        detail: `The body ${refusal.detail}. Send JSON (RFC 8259) in UTF-8, without Content-Encoding.`,
      }
  }
}

const NO_PRICE: Problem = {
  ...{ status: 415, title: 'Unsupported Media Type' },
  detail:
    'The body is not a JSON object, so it is not known what it costs. Nothing was charged. Send JSON, or ask the operator of the service to set estimateUnreadable.',
}
