/** Calls that wait for their turn. */
import type { Background } from '../../background.ts'
import type { LimitRule } from '../../config/compile.ts'
import type { Rule } from '../../config/compile-rule.ts'
import {
  type CallNumbers,
  type CostOptions,
  checkCosts,
  checkOptions,
  checkSignal,
  checkTimeout,
  costOf,
  type LimitIdentity,
  type RulesWith,
} from './arguments.ts'
import type { DecidedCall } from './decided-call.ts'
import type { LimitDecision, Limiter } from './limiter-shape.ts'
import { createWaitingLine, type LineClock, type WaitingLine } from './waiting-line.ts'
import { answerFor, lateTurnMs, waitAfter } from './waits.ts'

/** What waiting calls need from the limiter. `Options` say how a call is decided. */
export interface AcquiringOptions<Options> {
  clock: LineClock
  background: Background
  /** Whether a call may end the sleep of another one, so not on Workers. */
  wakes: boolean
  rulesWith: RulesWith
  /** Each rule of a limit with the key of the identity. @throws TypeError */
  bindKeys(name: string, identity: LimitIdentity, rules: readonly LimitRule[]): readonly { key: string }[]
  /** @param longestMs the longest wait in a queue that the call accepts; can be infinite */
  spend(
    name: string,
    identity: LimitIdentity,
    cost: CostOptions,
    options: Options,
    longestMs: number,
  ): Promise<DecidedCall>
  /** Counts a call by its last decision. */
  count(call: DecidedCall): LimitDecision
  /** Gives back what an admitted call holds and has spent. */
  giveBack(call: DecidedCall): Promise<void>
}

export interface Acquiring<Options> {
  methods(options: Options): Pick<Limiter, 'acquire'>
  /**
   * Notes that a call of this process has released units in flight.
   * @param keys of the identity, of all rules of the limit
   * @param numbers of the call: calls with others look for themselves
   * @returns whether a waiting call asks the store now
   */
  free(keys: readonly string[], numbers?: CallNumbers): boolean
}

/** Creates `acquire`. The calls of all `options` wait in the same lines. */
export function createAcquiring<Options>({
  clock,
  background,
  rulesWith,
  bindKeys,
  spend,
  count,
  giveBack,
  wakes,
}: AcquiringOptions<Options>): Acquiring<Options> {
  const lines = new Map<string, WaitingLine>()

  /** The calls of `acquire` that wait for an identity of a limit. */
  function lineOf(id: string) {
    const known = lines.get(id)
    if (known) return known
    const made = createWaitingLine(clock, wakes)
    lines.set(id, made)
    return made
  }

  const methods: Acquiring<Options>['methods'] = decideOptions => ({
    async acquire(name, identity = {}, acquireOptions = {}) {
      checkOptions('acquire', acquireOptions, ['cost', 'amounts', 'numbers', 'timeoutMs', 'signal'])
      const { timeoutMs = Number.POSITIVE_INFINITY, signal, ...options } = acquireOptions
      checkTimeout(timeoutMs)
      checkSignal(signal)
      const { numbers } = options
      const rules = rulesWith(name, numbers)
      checkCosts(name, options, rules)
      const keys = bindKeys(name, identity, rules).map(({ key }) => key)
      const lineId = lineIdOf(keys, numbers)
      const line = lineOf(lineId)
      const deadline = clock.elapsedMs() + timeoutMs
      const costOfRule = (rule: Rule) => costOf(rule as LimitRule, options)
      const cost = JSON.stringify([options.cost ?? 1, options.amounts])

      async function wait(): Promise<DecidedCall> {
        const place = line.join(deadline, cost, signal)
        let made: DecidedCall
        try {
          for (let attempts = 0; ; attempts++) {
            const isTurn = await place.turn()
            signal?.throwIfAborted()
            const leftMs = deadline - clock.elapsedMs()
            made = await spend(name, identity, options, decideOptions, leftMs)
            const lateMs = lateTurnMs(made, leftMs)
            if (lateMs !== undefined) {
              made = { ...made, decision: { ...made.decision, retryAfterMs: lateMs } }
              // Calls with more time can still join.
              const { verdicts } = made
              place.report(answerFor({ decision: { allowed: true }, verdicts }, costOfRule, 0))
              break
            }
            if (!isTurn) break
            const pauseMs = waitAfter(made, attempts)
            place.report(answerFor(made, costOfRule, pauseMs))
            const { allowed, pausedUntil, retryAfterMs } = made.decision
            const waitMs = pausedUntil === undefined ? pauseMs : retryAfterMs
            if (allowed || pauseMs < 0 || waitMs > deadline - clock.elapsedMs()) break
          }
        } finally {
          place.leave()
          if (line.isEmpty()) lines.delete(lineId)
        }
        if (signal?.aborted) return made
        const { allowed, delayMs } = count(made)
        if (allowed) await clock.sleep(delayMs, signal)
        return made
      }

      if (!signal) return (await wait()).decision
      signal.throwIfAborted()
      return await new Promise<LimitDecision>((resolve, reject) => {
        const abort = () => reject(signal.reason)
        signal.addEventListener('abort', abort)
        async function settle(): Promise<void> {
          try {
            const made = await wait()
            if (!signal!.aborted) resolve(made.decision)
            else if (made.decision.allowed) {
              await giveBack(made)
              lines.get(lineId)?.free()
            }
          } catch (error) {
            reject(error)
          } finally {
            signal!.removeEventListener('abort', abort)
          }
        }
        // It goes on after the call has rejected.
        background(settle())
      })
    },
  })

  return { methods, free: (keys, numbers) => lines.get(lineIdOf(keys, numbers))?.free() ?? false }
}

/** Calls with other numbers are admitted at other times, so they wait in a line of their own. */
const lineIdOf = (keys: readonly string[], numbers: CallNumbers | undefined) =>
  [...keys, ...(numbers ? [JSON.stringify(numbers)] : [])].join('\n')
