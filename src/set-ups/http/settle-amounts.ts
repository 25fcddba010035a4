/**
 * Finds what an admitted request has cost, from its response: for rules of a unit with an `actual` amount, and for rules with `countIf`.
 * The engine then settles what the request has reserved. A Worker whose rules reserve nothing does not carry this file.
 *
 * An amount that is not found stays as it was reserved. The reason is logged, once for each isolate.
 */
import type { Config, Rule } from '../../config/compile.ts'
import type { GatewayRule } from '../../config/compile-rule.ts'
import { milliseconds } from '../../config/duration.ts'
import type { Ending } from '../../limiter/engine-shape.ts'
import type { ActualOf, Reservation } from '../../limiter/reservations/reservation.ts'
import type { withActualHook } from '../../usage/actual-hook.ts'
import { acceptEncoding } from '../../usage/encodings.ts'
import type { BodyTap, Problem, UsageReport } from '../../usage/usage.ts'
import type { createUsageReader } from '../../usage/usage-reader.ts'
import { withDeadline } from './deadline.ts'
import type { Forwarded, SentHead } from './forward.ts'

/** Parts that a Worker carries only if its units need them. */
export interface AmountParts {
  /** With units whose `actual` is `usage`, `header` or `json`. */
  createUsageReader: typeof createUsageReader
  /** With the hook `actual`. */
  withActualHook: typeof withActualHook
}

/** A decided request. */
interface Reserved {
  /** Absent: it has reserved nothing. */
  reservation?: Reservation | undefined
  /** `hidesUsage`: the request asks the origin for usage that the client must not get. */
  estimated?: { hidesUsage: boolean }
}

/** Finds what one request has cost. */
export interface AmountsOfReply {
  /** Has to see the body. Absent: the body is passed on as it is. */
  tap?: BodyTap
  /** Whether the amounts are known only when the reply has ended. */
  needsEnd: boolean
  /** Returns what the request has cost. Never rejects. */
  end(ending: Ending): Promise<ActualOf | undefined>
}

/** Finds what the requests of a config have cost. */
export interface AmountSettler {
  /** The header Accept-Encoding for the origin. Undefined: that of the client, because the body of the reply is not read. */
  acceptEncoding(accepted: string | null, reserved: Reserved): string | undefined
  /**
   * Takes the reply to a request before it is sent, and removes the headers that the client must not get.
   *
   * @param startedAt when the request was forwarded (monotonic, ms)
   * @returns undefined if the request has reserved nothing, and its reply can be passed on as it is
   */
  follow(forwarded: Forwarded, reserved: Reserved, startedAt: number): AmountsOfReply | undefined
}

const CLIENT_GONE = 499

/** @param now monotonic time (ms) */
export function createAmountSettler(
  { units, hooks }: Pick<Config, 'units' | 'hooks'>,
  parts: AmountParts,
  now: () => number,
): AmountSettler {
  const hiddenHeaders = [...units.values()].flatMap(({ actual }) =>
    typeof actual === 'object' && 'header' in actual && !actual.keep ? actual.header : [],
  )
  const logged = new Set<string>()

  const actualOf = ({ unit }: Rule) => units.get(unit)?.actual
  const isInBody = (rule: Rule) => {
    const actual = actualOf(rule)
    return typeof actual === 'object' && !('header' in actual)
  }

  function log({ reason, unit, detail }: Problem): void {
    const id = `${reason} ${unit}`
    if (logged.has(id)) return
    logged.add(id)
    console.warn(JSON.stringify({ level: 'warn', event: 'usage', reason, unit, detail }))
  }

  return {
    acceptEncoding: (accepted, { reservation, estimated }) =>
      estimated?.hidesUsage || reservation?.rules.some(({ rule }) => isInBody(rule))
        ? acceptEncoding(accepted, estimated?.hidesUsage)
        : undefined,

    follow({ response, isFromSluice, isUnsent, isDecoded = false, observe }, reserved, startedAt) {
      if (isFromSluice) return reserved.reservation && withoutOrigin(isUnsent ? undefined : response.status)
      if (!observe) return read(response, isDecoded, reserved, startedAt)
      let amounts: AmountsOfReply | undefined
      observe(head => {
        amounts = read(head, false, reserved, startedAt)
        return amounts?.tap
      })
      return reserved.reservation && { needsEnd: true, end: async ending => amounts?.end(ending) }
    },
  }

  function read(
    { status, headers }: SentHead,
    isDecoded: boolean,
    { reservation, estimated }: Reserved,
    startedAt: number,
  ): AmountsOfReply | undefined {
    const hidesUsage = estimated?.hidesUsage
    if (!reservation && !hidesUsage) {
      for (const name of hiddenHeaders) headers.delete(name)
      return undefined
    }
    const rules = (reservation?.rules ?? []).map(({ rule }) => rule)

    const sources = Object.fromEntries(
      rules.flatMap(rule => {
        const actual = actualOf(rule)
        return typeof actual === 'object' ? [[rule.unit, actual]] : []
      }),
    )
    const hidden = new Map(hiddenHeaders.map(name => [name.toLowerCase(), headers.get(name)]))
    const head = {
      status,
      headers: { get: (name: string) => hidden.get(name.toLowerCase()) ?? headers.get(name) },
    }
    const reader =
      hidesUsage || Object.keys(sources).length > 0
        ? parts.createUsageReader(sources, head, {
            hidesUsage,
            // A body with this encoding is recognized by its first bytes.
            isDecoded: isDecoded && !/gzip/i.test(headers.get('content-encoding') ?? ''),
          })
        : undefined
    for (const name of hiddenHeaders) headers.delete(name)
    reader?.cleanHeaders(headers)
    const has = (actual: 'bytes' | 'ms' | 'hook') => rules.some(rule => actualOf(rule) === actual)
    const hook = rules.some(({ unit }) => units.has(unit)) ? hooks?.actual : undefined
    let bytes = 0

    const count = (sent: Uint8Array) => {
      bytes += sent.byteLength
      return sent
    }
    const tap: BodyTap | undefined =
      reader?.readsBody || has('bytes')
        ? {
            changesBytes: reader?.changesBytes ?? false,
            pass: chunk => count(reader ? reader.pass(chunk) : chunk),
            rest: () => count(reader ? reader.rest() : NO_BYTES),
            see: chunk => reader?.see(chunk),
          }
        : undefined

    async function report(ending: Ending): Promise<UsageReport> {
      const found = (await reader?.end(ending)) ?? { amounts: {}, ending, isPartial: false, problems: [] }
      const measured = { bytes, ms: Math.max(0, now() - startedAt) }
      const amounts = rules.flatMap(rule => {
        const actual = actualOf(rule)
        return actual === 'bytes' || actual === 'ms' ? [[rule.unit, Math.ceil(measured[actual])]] : []
      })
      const whole = { ...found, amounts: { ...found.amounts, ...Object.fromEntries(amounts) } }
      if (!hook) return whole
      return await withDeadline(milliseconds(hooks!.deadline), parts.withActualHook(whole, hook, head)).catch(
        (error: Error) => ({
          ...whole,
          problems: [...whole.problems, { reason: 'hook' as const, detail: error.message }],
        }),
      )
    }

    return {
      ...(tap && { tap }),
      needsEnd: tap !== undefined || has('ms') || hook !== undefined,
      async end(ending) {
        const { amounts, problems } = await report(ending)
        for (const problem of problems) log(problem)
        return rule => {
          if (!units.has(rule.unit)) return costOf(rule, status)
          return Object.hasOwn(amounts, rule.unit) ? amounts[rule.unit] : undefined
        }
      },
    }
  }
}

const NO_BYTES = new Uint8Array()

/**
 * The gateway has replied because the origin has not, or because the client has left while the origin was working. Then the estimate
 * stays, or clients could get replies for nothing by leaving early.
 *
 * @param status undefined: the request was not forwarded
 */
function withoutOrigin(status: number | undefined): AmountsOfReply {
  const actualOf: ActualOf = rule => (isCountedIf(rule) && status ? costOf(rule, status) : 0)
  return { needsEnd: false, end: async () => (status === CLIENT_GONE ? undefined : actualOf) }
}

const isCountedIf = (rule: Rule): rule is GatewayRule => (rule as GatewayRule).countIf !== undefined

/** The cost of a request under a rule with `countIf`: all that was reserved, or nothing. */
const costOf = (rule: Rule, status: number): number | undefined =>
  isCountedIf(rule) && !rule.countIf!.status.has(status) ? 0 : undefined
