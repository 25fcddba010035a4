/**
 * Finds what an admitted request has cost, from its response: for rules of a unit with an `actual` amount, and for rules with `countIf`.
 * The engine then settles what the request has reserved. A Worker whose rules reserve nothing does not carry this file.
 *
 * An amount that is not found stays as it was reserved. The reason is logged, once for each isolate.
 */
import type { Config, GatewayRule, Rule } from '../../config/compile.ts'
import { milliseconds } from '../../config/duration.ts'
import type { ActualSource, Units } from '../../config/units-shape.ts'
import type { Ending } from '../../limiter/engine-shape.ts'
import type { ActualOf, Reservation } from '../../limiter/reservations/reservation.ts'
import type { Log } from '../../log.ts'
import type { withActualHook } from '../../usage/actual-hook.ts'
import { acceptEncoding } from '../../usage/encodings.ts'
import type { Amounts, BodyTap, Job, Problem, ReplyHead, UsageReport } from '../../usage/usage.ts'
import type { createUsageReader } from '../../usage/usage-reader.ts'
import { withDeadline } from './deadline.ts'
import type { Forwarded } from './forward.ts'
import { logException } from './unexpected.ts'

/** What a request has cost. */
export interface Cost {
  actualOf: ActualOf
  /** The job that the reply is about. It is over if the reply has all of its usage. */
  job?: Job | undefined
}

/** Finds what one request has cost. */
export interface CostOfReply {
  /** Sees the body. Absent: the body is passed on as it is. */
  tap?: BodyTap | undefined
  /** Whether something depends on when and how the reply ends. */
  needsEnd: boolean
  /** @returns undefined: as much as it has reserved */
  end(ending: Ending): Promise<Cost | undefined>
}

export interface SettleParts {
  /** With units whose `actual` is `usage`, `header` or `json`. */
  createUsageReader: typeof createUsageReader
  /** With the hook `actual`. */
  withActualHook: typeof withActualHook
}

/** A decided request. */
interface Reserved {
  /** Absent: it has reserved nothing. */
  reservation: Reservation | undefined
  /** The rules whose jobs the request reads, and that count nothing for it. */
  jobRules?: readonly Rule[] | undefined
  /** It asks the origin for usage that the client must not get. */
  hidesUsage: boolean
  /** What its whole body says that it costs, as soon as that has passed. */
  estimate: () => Amounts
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
  follow(forwarded: Forwarded, reserved: Reserved, startedAt: number): CostOfReply | undefined
}

const CLIENT_GONE = 499

type Headers = { delete(name: string): void }

/** @param now monotonic time (ms) */
export function createAmountSettler(
  { units, hooks }: { units: Units; hooks: Config['hooks'] },
  parts: SettleParts,
  now: () => number,
  log: Log,
): AmountSettler {
  const actualOf = ({ unit }: Rule): ActualSource | undefined => units.get(unit)?.actual
  const hiddenHeaders = [...units.values()].flatMap(({ actual }) =>
    typeof actual === 'object' && 'header' in actual && !actual.keep ? actual.header : [],
  )
  const logProblem = createProblemLog(log)

  function read(
    head: ReplyHead,
    isDecoded: boolean,
    { reservation, jobRules = [], hidesUsage, estimate }: Reserved,
    startedAt: number,
  ) {
    const reserving = reservation?.rules.map(({ rule }) => rule) ?? []
    const rules = [...reserving, ...jobRules]
    const has = (actual: ActualSource) => rules.some(rule => actualOf(rule) === actual)
    const sources = Object.fromEntries(
      rules.flatMap(rule => {
        const actual = actualOf(rule)
        return typeof actual === 'object' ? [[rule.unit, actual] as const] : []
      }),
    )
    const reader =
      hidesUsage || Object.keys(sources).length > 0
        ? parts.createUsageReader(sources, head, {
            hidesUsage,
            // The reader recognizes gzip by its first bytes.
            isDecoded: isDecoded && !/gzip/i.test(head.headers.get('content-encoding') ?? ''),
          })
        : undefined
    const hook = reserving.some(({ unit }) => units.has(unit)) ? hooks?.actual : undefined
    const headOfHook = hook && keepHeaders(head, hiddenHeaders)
    let bytes = 0
    const tap: BodyTap | undefined =
      reader?.readsBody || has('bytes')
        ? {
            changesBytes: reader?.changesBytes ?? false,
            pass: chunk => reader?.pass(chunk) ?? chunk,
            rest: () => reader?.rest() ?? NO_BYTES,
            see(chunk) {
              bytes += chunk.byteLength
              return reader?.see(chunk)
            },
          }
        : undefined

    /** @returns also the units whose amounts are only what was counted */
    async function report(ending: Ending): Promise<UsageReport & { counted: ReadonlySet<string> }> {
      const nothing: UsageReport = { amounts: {}, ending, isPartial: false, problems: [] }
      const { job, ...found } = (await reader?.end(ending)) ?? nothing
      const measured = { bytes, ms: Math.ceil(Math.max(0, now() - startedAt)) }
      const amounts: Record<string, number> = { ...found.amounts }
      for (const rule of rules) {
        const actual = actualOf(rule)
        if (actual === 'bytes' || actual === 'ms') amounts[rule.unit] = measured[actual]
      }
      const whole = { ...found, amounts }
      const inBody = rules.filter(rule => isInBody(actualOf(rule))).map(({ unit }) => unit)
      const counted = new Set(found.isPartial ? inBody : [])
      if (!hook) return { ...whole, counted, job }
      const hooked = parts.withActualHook(whole, hook, headOfHook!)
      const result = await withDeadline(milliseconds(hooks!.deadline), hooked).catch(
        ({ message }: Error) => ({
          ...whole,
          problems: [...whole.problems, { reason: 'hook' as const, detail: message }],
        }),
      )
      // What the hook says replaces also what was counted.
      for (const unit of counted) if (result.amounts[unit] !== amounts[unit]) counted.delete(unit)
      return { ...result, counted, job }
    }

    return {
      tap,
      needsEnd: tap !== undefined || has('ms') || hook !== undefined,
      cleanHeaders(headers: Headers) {
        for (const name of hiddenHeaders) headers.delete(name)
        reader?.cleanHeaders(headers)
      },
      async end(ending: Ending): Promise<Cost> {
        const { amounts, problems, counted, job, isPartial } = await report(ending)
        for (const problem of problems) logProblem(problem)
        const hasUsage = !isPartial && rules.some(({ unit }) => Object.hasOwn(amounts, unit))
        const actualOf: ActualOf = rule => {
          if (!units.has(rule.unit)) return costByStatus(rule, head.status)
          if (!Object.hasOwn(amounts, rule.unit)) return undefined
          const amount = amounts[rule.unit]!
          // Clients can end a reply before its usage.
          return counted.has(rule.unit)
            ? Math.max(amount, reservedBy(rule, reservation), estimate()[rule.unit] ?? 0)
            : amount
        }
        return { actualOf, job: job && { ...job, isOver: job.isOver && hasUsage } }
      },
    }
  }

  return {
    acceptEncoding(accepted, { reservation, jobRules, hidesUsage }) {
      const isRead = jobRules || reservation?.rules.some(({ rule }) => isInBody(actualOf(rule)))
      if (!isRead && !hidesUsage) return undefined
      return acceptEncoding(accepted, hidesUsage)
    },

    follow({ response, isFromSluice, isUnsent = false, isDecoded = false, observe }, reserved, startedAt) {
      const { reservation, jobRules } = reserved
      if (isFromSluice) return reservation && withoutReply(response.status, isUnsent)
      if (!observe) {
        const amounts = read(response, isDecoded, reserved, startedAt)
        amounts.cleanHeaders(response.headers)
        return reservation || amounts.tap ? amounts : undefined
      }
      let amounts: CostOfReply | undefined
      observe(
        head => {
          const ofHead = read(head, false, reserved, startedAt)
          amounts = ofHead
          return { see: chunk => ofHead.tap?.see(chunk), cleanHeaders: ofHead.cleanHeaders }
        },
        error => logException(log, error),
      )
      if (!reservation && !jobRules) return undefined
      return { needsEnd: true, end: async ending => await amounts?.end(ending) }
    },
  }
}

const NO_BYTES = new Uint8Array()

const isInBody = (actual: ActualSource | undefined) => typeof actual === 'object' && !('header' in actual)

/** A head that keeps these headers when they are removed from the reply. */
function keepHeaders({ status, headers }: ReplyHead, names: readonly string[]): ReplyHead {
  const kept = new Map(names.map(name => [name.toLowerCase(), headers.get(name)]))
  return { status, headers: { get: name => kept.get(name.toLowerCase()) ?? headers.get(name) } }
}

/**
 * The gateway has replied because the origin has not. Unless the origin did not get the request, it may have worked, and may still do so
 * after its time was up or its client has left. Then the estimate stays: otherwise clients could make the origin work for nothing.
 */
function withoutReply(status: number, isUnsent: boolean): CostOfReply {
  return { needsEnd: false, end: async () => ({ actualOf: costWithoutReply(status, isUnsent) }) }
}

/** What a request costs that has no reply of the origin. @param status of the gateway's own reply, or of an exception */
export const costWithoutReply =
  (status: number, isUnsent = false): ActualOf =>
  rule =>
    isCountedIf(rule) && status !== CLIENT_GONE ? costByStatus(rule, status) : isUnsent ? 0 : undefined

const reservedBy = (rule: Rule, reservation: Reservation | undefined): number =>
  reservation?.rules.find(reserved => reserved.rule === rule)?.reserved ?? 0

const isCountedIf = (rule: Rule): rule is GatewayRule => (rule as GatewayRule).countIf !== undefined

/** The cost of a request under a rule with `countIf`: what it has reserved, or nothing. */
const costByStatus = (rule: Rule, status: number): number | undefined =>
  isCountedIf(rule) && !rule.countIf!.status.has(status) ? 0 : undefined

/** Logs each problem once. */
function createProblemLog(log: Log): (problem: Problem) => void {
  const logged = new Set<string>()
  return ({ reason, unit, detail }) => {
    const id = `${reason} ${unit}`
    if (!logged.has(id) && log('warn', 'usage', { reason, unit, detail })) logged.add(id)
  }
}
