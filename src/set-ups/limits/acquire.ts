/** Calls that wait for their turn. */
import type { Background } from '../../background.ts'
import type { LimitRule } from '../../config/compile.ts'
import type { Rule } from '../../config/compile-rule.ts'
import { milliseconds } from '../rule-result.ts'
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
import { observeLateTurn } from './observe-call.ts'
import { createQueueJoins, type QueueJoins } from './queue-joins.ts'
import { createWaitingLine, type LineClock, type WaitingLine } from './waiting-line.ts'
import { answerFor, queueWait, waitAfter } from './waits.ts'

/** What waiting calls need from the limiter. `Options` say how a call is decided. */
export interface AcquiringOptions<Options> {
  clock: LineClock
  background: Background
  /** Whether a call may end the sleep of another one, so not on Workers. */
  wakes: boolean
  rulesWith: RulesWith
  /** Each rule of a limit with the key of the identity. @throws TypeError */
  bindKeys(name: string, identity: LimitIdentity, rules: readonly LimitRule[]): readonly { key: string }[]
  /** The state of the limit, without spending. */
  look(
    name: string,
    identity: LimitIdentity,
    numbers: CallNumbers | undefined,
    options: Options,
  ): Promise<DecidedCall>
  spend(name: string, identity: LimitIdentity, cost: CostOptions, options: Options): Promise<DecidedCall>
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
   */
  free(keys: readonly string[], numbers?: CallNumbers): void
}

/** Creates `acquire`. The calls of all `options` wait in the same lines. */
export function createAcquiring<Options>({
  clock,
  background,
  rulesWith,
  bindKeys,
  look,
  spend,
  count,
  giveBack,
  wakes,
}: AcquiringOptions<Options>): Acquiring<Options> {
  const lines = new Map<string, { line: WaitingLine; joins: QueueJoins }>()

  /** The calls of `acquire` that wait for an identity of a limit. */
  function lineOf(id: string) {
    const known = lines.get(id)
    if (known) return known
    const made = { line: createWaitingLine(clock, wakes), joins: createQueueJoins() }
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
      const { line, joins } = lineOf(lineId)
      const deadline = clock.elapsedMs() + timeoutMs
      const joinMs = queueMs(rules, options)
      const attempt = async (): Promise<DecidedCall> => {
        // A place in a queue cannot be given back, so a call whose turn would come too late does not join.
        while (joinMs > 0 && Number.isFinite(deadline)) {
          const addedMs = joins.watch()
          const looked = await look(name, identity, numbers, decideOptions)
          const { decision, verdicts, observed } = looked
          const delayMs = milliseconds(queueWait(verdicts))
          const left = deadline - clock.elapsedMs()
          if (delayMs > left || signal?.aborted) {
            const refused = { ...decision, allowed: false, retryAfterMs: delayMs }
            return { ...looked, decision: refused, observed: observeLateTurn(observed, verdicts, left) }
          }
          if (delayMs + addedMs() <= left) break
          // The calls that may be before it have asked.
          await clock.sleep(LOOK_AGAIN_MS, signal)
        }
        return await joins.join(joinMs, () => spend(name, identity, options, decideOptions))
      }
      const costOfRule = (rule: Rule) => costOf(rule as LimitRule, options)
      const cost = JSON.stringify([options.cost ?? 1, options.amounts])

      async function wait(): Promise<DecidedCall> {
        const place = line.join(deadline, cost, signal)
        let made: DecidedCall
        try {
          for (let attempts = 0; ; attempts++) {
            const isTurn = await place.turn()
            signal?.throwIfAborted()
            made = await attempt()
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
              lines.get(lineId)?.line.free()
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

  return { methods, free: (keys, numbers) => lines.get(lineIdOf(keys, numbers))?.line.free() }
}

/** Calls with other numbers are admitted at other times, so they wait in a line of their own. */
const lineIdOf = (keys: readonly string[], numbers: CallNumbers | undefined) =>
  [...keys, ...(numbers ? [JSON.stringify(numbers)] : [])].join('\n')

/** A call that may have lost its place in a queue to others looks again after this time (ms). */
const LOOK_AGAIN_MS = 5

/** By how much a call of this cost makes the longest of its queues longer (ms). 0: it joins none. */
function queueMs(rules: readonly LimitRule[], options: CostOptions): number {
  const added = rules.map(rule => {
    const units = costOf(rule, options)
    const { rate, period, burst } = rule.quota
    return rule.counting.isQueue && units <= burst ? (units * period) / rate / 1e3 : 0
  })
  return Math.max(0, ...added)
}
