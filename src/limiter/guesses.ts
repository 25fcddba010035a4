/**
 * Guesses that the isolate has refused by itself: API keys with a wrong signature. A flood of them makes no trip. The rules on bad
 * credentials count them with the next trip that leaves anyway, and the reply shows whether an address has made too many. Their number
 * is bounded. Guesses above the bound are not counted, and neither are those that are lost with a trip.
 */
import type { Clock } from '../clock.ts'
import { GatewayError } from '../errors.ts'
import type { BoundRule, Outcome } from '../script/evaluation.ts'
import type { Rider, TripInfo } from '../trips/rider.ts'
import { isWithin } from '../trips/turn.ts'
import { answerKeyOf, type KnownAnswers, type KnownRequest } from './answers/known.ts'
import type { RefusalMemory } from './answers/refusals.ts'
import { bindRule, bindRules, type Demand, type SwitchName } from './bind.ts'
import { type Decision, toDecision } from './decision.ts'
import { halvesOf } from './outage/hand-overs.ts'
import { decodeReplies, prepareDecide } from './prepared-call.ts'

export type Guesses = ReturnType<typeof createGuesses>

/** About 500 bytes each. */
const MAX_ADDRESSES = 1000

/**
 * Calls of one trip, about 40 µs of Redis each. The decisions of the trip run before them, and its reply waits for them. Only the calls for
 * a single address can be more.
 */
const MAX_CALLS = 20

/** How long no other guesses are sent (ms). Calls can cost money: a flood from many addresses makes 20 of them a second. */
const PAUSE_MS = 1000

/**
 * The same until the last ones are answered. On a cluster, their node may hang, and the decisions that they travel with wait for it. Guesses
 * make no trip of their own, so they cannot wait for one, as other riders do (`isUnanswered`).
 */
const UNANSWERED_PAUSE_MS = 10_000

/** How long guesses wait for a trip (ms). The store counts them as if they were made now. */
const MAX_AGE_MS = 60_000

const BAD = { kind: 'failed' } as const

/** The guesses of one address. */
interface AddressGuesses {
  request: KnownRequest
  guesses: number
  /** When the first one was made (ms). */
  since: number
}

/**
 * @param memory where refusals are remembered; absent: nowhere
 * @param options `decideAt` returns the time to count by (µs); absent: the clock of the store
 */
export function createGuesses(
  known: KnownAnswers,
  memory: RefusalMemory | undefined,
  {
    clock,
    decideAt: at,
    switchName,
  }: { clock: Clock; decideAt?: (() => number) | undefined; switchName: SwitchName },
) {
  const now = () => clock.now()
  const addresses = new Map<string, AddressGuesses>()
  let lastSentAt = Number.NEGATIVE_INFINITY
  let isAnswered = true
  const isTooOld = ({ since }: AddressGuesses) => !isWithin(MAX_AGE_MS, since, known.now())

  /**
   * The calls for one address: one row for each of its slots, if the store is a cluster. The last call of a row makes a single guess, so that
   * its reply shows whether another one is refused.
   */
  function callsFor({ request, guesses }: AddressGuesses, { keysPerCall }: TripInfo) {
    const { ruleSet, rules } = request.demand
    const groups = keysPerCall > 1 ? [rules] : [...Map.groupBy(rules, ({ key }) => key).values()]
    return groups.flatMap(group =>
      halvesOf(guesses).map((count, i, { length }) => ({
        request,
        isLast: i === length - 1,
        prepared: prepareDecide({
          ...{ ruleSet, subject: BAD },
          rules: group.map(({ rule, key, cost, mode }) => bindRule(rule, key, cost * count, now(), mode)),
          ...(at && { now: at() }),
        }),
      })),
    )
  }

  /** Takes the guesses of as many addresses as fit into one trip. */
  function takeCalls(trip: TripInfo) {
    const begunAt = known.now()
    const switches = known.currentSwitches()
    const calls: ReturnType<typeof callsFor> = []
    for (const [key, counted] of addresses) {
      // A rule may be off by now.
      const isValid = counted.request.switches === switches && !isTooOld(counted)
      const more = isValid ? callsFor(counted, trip) : []
      if (calls.length > 0 && calls.length + more.length > MAX_CALLS) break
      addresses.delete(key)
      counted.request.trip = { asOf: known.changes, begunAt, notSentBefore: begunAt }
      calls.push(...more)
    }
    return calls
  }

  const rider: Rider = {
    load(trip) {
      const pauseMs = isAnswered ? PAUSE_MS : UNANSWERED_PAUSE_MS
      if (addresses.size === 0 || !trip.isAnswering || isWithin(pauseMs, lastSentAt, known.now()))
        return undefined
      lastSentAt = known.now()
      isAnswered = false
      const calls = takeCalls(trip)
      const prepared = calls.map(({ prepared }) => prepared)
      return {
        calls: prepared.map(({ call }) => call),
        done(replies) {
          isAnswered = !replies.some(reply => reply instanceof GatewayError)
          const results = decodeReplies(prepared, replies)
          const last = calls.flatMap(({ request, isLast }, i) => {
            const result = results[i]!
            return isLast && !(result instanceof GatewayError) ? [{ request, result }] : []
          })
          for (const [request, answers] of Map.groupBy(last, ({ request }) => request))
            memory?.remember(request, mergeSlots(answers.map(({ result }) => result)))
        },
      }
    },
  }

  return {
    rider,

    /**
     * Counts a guess under the rules on bad credentials of a request, when the next trip leaves.
     * @returns the refusal of the store, if it refuses the address by now
     */
    note({ ruleSet, rules: demanded }: Pick<Demand, 'ruleSet' | 'rules'>): Decision | undefined {
      const switches = known.currentSwitches()
      const onGuesses = demanded.filter(({ rule }) => rule.on === 'auth-failure')
      const rules = bindRules(onGuesses, switches, switchName, now())
      if (rules.length === 0) return undefined
      const request: KnownRequest = { demand: { ruleSet, rules, subject: BAD }, switches }
      // No trip is made that could renew the refusal, so it lasts as long as the store has said.
      const refusal = memory?.find(request, 'after-failure')
      if (refusal) return { ...toDecision(refusal), from: 'refusals' } as Decision
      const key = answerKeyOf(rules)
      const counted = addresses.get(key)
      if (counted && !isTooOld(counted)) counted.guesses = Math.min(counted.guesses + 1, mostGuesses(rules))
      else if (counted || addresses.size < MAX_ADDRESSES)
        addresses.set(key, { request, guesses: 1, since: known.now() })
      return undefined
    },
  }
}

/** The outcome for an address from those of its slots: one that refuses is enough. */
function mergeSlots(outcomes: readonly Outcome[]): Outcome {
  const worst = outcomes.find(({ status }) => status === 'refused') ?? outcomes[0]!
  return { ...worst, verdicts: outcomes.flatMap(({ verdicts }) => verdicts) }
}

/** As many as the store can admit, and one that it refuses. */
const mostGuesses = (rules: readonly BoundRule[]) =>
  Math.min(...rules.map(({ rule, cost }) => Math.floor(rule.quota.burst / cost))) + 1
