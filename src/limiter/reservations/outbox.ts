/**
 * The settlements that the store has not confirmed. Since the store settles each reservation at most once, in any order, every message is
 * repeated until it has answered: it makes no difference whether one was not sent, has failed or has only lost its reply. A message is
 * given up when its reservation has ended in the store.
 *
 *     ready        waits for the next trip, or 250 ms for one of its own. A decision of that trip about the same identity takes it
 *                  along (settle-along.ts); if it has not settled all of them, and otherwise, they take a call of their own
 *                  Renewals wait apart, and are sent after all settlements
 *     sent         has no answer yet; is sent again after 2 s, but not before the deadline of its trip
 *     failed       its trip has failed; is sent again after 2 s, and later each time that the store answers with an error
 */
import { GatewayError } from '../../errors.ts'
import type { Log } from '../../log.ts'
import { debtsIn, settledIn } from '../../script/reservation-wire.ts'
import type { SettledRequest, Settlement, SettleResult } from '../../script/settle.ts'
import { settleAlong } from '../../script/settle-along.ts'
import type { StoreCall } from '../../store/store.ts'
import { repeated } from '../../trips/repeated-chore.ts'
import { keysOf, type Rider } from '../../trips/rider.ts'
import { isWithin } from '../../trips/turn.ts'
import { decodeReplies, prepareSettle } from '../prepared-call.ts'
import { callKeyOf, type Reservation, settlementFor } from './reservation.ts'
import type { ReservationStatistics } from './reservation-statistics.ts'

/** How long a settlement waits for another HTTP request that carries it (ms). */
const SEND_DELAY_MS = 250

/**
 * A message whose trip has failed is sent again after the first of these times (ms); one without an answer also not before the deadline. An error of
 * the script, as for a key of another type, will be the same again, so each one doubles the time.
 */
const REPEAT_AFTER_MS = [2000, 4000, 8000, 16_000, 32_000]

/** A message can take as long until the store has it and answers in time (ms), or until the deadline. */
const ON_THE_WAY_MS = 5000

/** How long after the deadline of a trip its messages count as lost (ms). */
const AFTER_DEADLINE_MS = 250

/** Requests in one call, about 6 µs of Redis each. */
const MAX_PER_CALL = 50

/** How many of the batches that wait are compared with the decisions of a trip. */
const MAX_COMPARED = 200

/** For how long a state in which decisions have not found reservations is left to calls about settlements (ms). */
const APART_MS = 10_000
const MAX_APART = 1000

/** Calls beside decisions, which wait for them, and in a trip of their own; about 40 µs of Redis each. */
const MAX_CALLS_BESIDE = 20
const MAX_CALLS_ALONE = 100

/** The most settlements that wait, and the most renewals, about 0.8 kB each: of 100 requests a second, those of 100 s. */
const MAX_MESSAGES = 10_000

/** In a process that stops: how often it checks whether the last messages are confirmed, when it repeats them, and when it gives up (ms). */
const STOP_CHECK_MS = 10
const REPEAT_WHEN_STOPPING_MS = 250
const MAX_STOP_MS = 2000

const OVERFLOW = `More than ${MAX_MESSAGES} settlements wait for a store that does not answer. Further reservations end unsettled, by the policy of their unit.`

const RENEWALS_OVERFLOW = `More than ${MAX_MESSAGES} renewals wait for a store that does not answer. Further ones are tried again later. A reservation that is not renewed within its ttl ends by the policy of its unit.`

const REFUSED = 'The store answers a settlement with an error. It is repeated until its reservation ends. '

export interface OutgoingMessage {
  readonly request: SettledRequest
  /** When its reservation ends (ms). */
  readonly until: number
  /** Set if only its id is known, because the reply to its decision was lost: when that was sent (ms). */
  readonly lostAt?: number | undefined
  /**
   * Called when the store has answered.
   * @param sentAt (ms)
   * @param isGone no reservation of the call was there: all have ended, or were settled
   */
  onConfirmed?(sentAt: number, isGone: boolean): void
  /** Whether another message has replaced it. */
  isObsolete?(): boolean
}

/** Messages that one call can carry. */
interface Batch {
  readonly reservation: Reservation
  messages: OutgoingMessage[]
  /** Since when the oldest waits, or when they were sent (ms). */
  since: number
  /** How often the store has answered, and how often with an error. */
  answers: number
  errors: number
  /** Whether they were sent before. */
  isRepeated?: boolean
  /** Whether no decision takes them along. */
  isApart?: boolean
}

/** Renewals that one call can carry. */
interface Renewals {
  readonly reservation: Reservation
  /** The newest of each reservation. */
  readonly byId: Map<string, OutgoingMessage>
  /** Since when the oldest waits (ms). */
  since: number
}

/** Messages that a decision takes along. */
interface Along {
  readonly batch: Batch
  /** The place of the decision in its trip. */
  readonly place: number
}

export interface OutboxOptions {
  /** Monotonic (ms). */
  now(): number
  /** The time of this machine (ms). */
  wallClock(): number
  /** How long a trip can take (ms). Default: less than a message waits for an answer. */
  deadlineMs?: number | undefined
  /** The time to write by (µs). Absent, as always in production: the clock of the store. */
  writeAt?: (() => number) | undefined
  log: Log
  stats: ReservationStatistics
  /** Called with the states that the store has answered. */
  onReport?: ((rules: Reservation['rules'], result: SettleResult) => void) | undefined
}

export function createOutbox({
  now,
  wallClock,
  deadlineMs = 0,
  writeAt,
  log,
  stats,
  onReport,
}: OutboxOptions) {
  const onTheWayMs = Math.max(ON_THE_WAY_MS, deadlineMs)
  /** By the key of the call, the longest waiting first. */
  const ready = new Map<string, Batch>()
  /** The same for renewals. A settlement of the same reservation replaces one. */
  const renewals = new Map<string, Renewals>()
  /** In the order of sending. */
  const sent = new Set<Batch>()
  /** By their errors. */
  const failed = REPEAT_AFTER_MS.map(() => new Set<Batch>())
  /** Both, with the time after which each is sent again. */
  const unconfirmed = [
    ...failed.map((batches, i) => ({ batches, ms: REPEAT_AFTER_MS[i]! })),
    { batches: sent, ms: Math.max(REPEAT_AFTER_MS[0]!, deadlineMs + AFTER_DEADLINE_MS) },
  ]
  let isStopping = false
  const repeatAfterMs = (ms: number) => (isStopping ? REPEAT_WHEN_STOPPING_MS : ms)
  let isErrorLogged = false
  const size = { settlements: 0, renewals: 0 }
  const dropped = { settlements: 0, renewals: 0 }
  const leave = (messages: readonly OutgoingMessage[]) => {
    for (const message of messages) size[kindOf(message)] -= 1
  }

  /** Drops messages whose reservation has ended. */
  function dropEnded(batch: Batch, time: number): void {
    const { messages } = batch
    const isOver = ({ until, isObsolete }: OutgoingMessage) => time >= until || (isObsolete?.() ?? false)
    batch.messages = messages.filter(message => !isOver(message))
    leave(messages.filter(isOver))
    giveUp(
      batch.reservation,
      messages.filter(({ until }) => time >= until),
    )
  }

  function giveUp(reservation: Reservation, messages: readonly OutgoingMessage[]): void {
    const settlements = messages.filter(({ request }) => !request.isRenewal).length
    if (settlements > 0) stats.givenUp(reservation, settlements)
  }

  /** The messages to send now, each batch in one call: first settlements, which may be the last word about a request, and then renewals. */
  function take(most: number, time: number): Batch[] {
    const batches: Batch[] = []
    const add = (batch: Batch) => {
      dropEnded(batch, time)
      if (batch.messages.length > 0) batches.push(batch)
    }
    const repeat = (isWanted: (batch: Batch) => boolean) => {
      for (const { batches: waiting, ms } of unconfirmed) {
        for (const batch of waiting) {
          if (batches.length >= most || isWithin(repeatAfterMs(ms), batch.since, time)) break
          if (!isWanted(batch)) continue
          waiting.delete(batch)
          batch.isRepeated = true
          add(batch)
        }
      }
    }
    repeat(({ messages }) => messages.some(({ request }) => !request.isRenewal))
    for (const [key, batch] of ready) {
      while (batches.length < most && batch.messages.length > 0) {
        const messages = batch.messages.splice(0, MAX_PER_CALL)
        add({ ...batch, messages: [...messages, ...takeRenewals(key, MAX_PER_CALL - messages.length)] })
      }
      if (batch.messages.length > 0) break
      ready.delete(key)
    }
    repeat(() => true)
    for (const [key, { reservation, since }] of renewals) {
      while (batches.length < most && renewals.has(key))
        add({ reservation, since, messages: takeRenewals(key, MAX_PER_CALL), answers: 0, errors: 0 })
      if (renewals.has(key)) break
    }
    return batches
  }

  function takeRenewals(key: string, most: number): OutgoingMessage[] {
    const waiting = renewals.get(key)
    if (!waiting) return []
    const { byId } = waiting
    const taken = [...byId].slice(0, most)
    for (const [id] of taken) byId.delete(id)
    if (byId.size === 0) renewals.delete(key)
    return taken.map(([, message]) => message)
  }

  /** By the key of a state. */
  const apartSince = new Map<string, number>()
  function isApart({ isApart = false, reservation: { rules } }: Batch, time: number): boolean {
    const since = rules.map(({ key }) => apartSince.get(key))
    return isApart || since.some(at => at !== undefined && isWithin(APART_MS, at, time))
  }

  /** Lets decisions settle what is about the same identities. */
  function takeAlong(calls: readonly StoreCall[], time: number): Along[] {
    const places = new Map(calls.flatMap((call, i) => keysOf(call).map(key => [key, i])))
    const taken: Along[] = []
    let compared = 0
    for (const [key, batch] of ready) {
      if (compared++ === MAX_COMPARED) break
      const place = places.get(batch.reservation.rules[0]!.key)
      if (place === undefined || isApart(batch, time)) continue
      dropEnded(batch, time)
      const messages = batch.messages.slice(0, MAX_PER_CALL)
      // A decision finds a reservation by its time, too, which is unknown if its own reply was lost.
      if (messages.some(({ lostAt }) => lostAt !== undefined)) continue
      const requests = messages.map(({ request }) => request)
      if (messages.length > 0 && !settleAlong(calls[place]!, { ...batch.reservation, requests })) continue
      batch.messages = batch.messages.slice(MAX_PER_CALL)
      if (batch.messages.length === 0) ready.delete(key)
      if (messages.length > 0) taken.push({ batch: { ...batch, messages }, place })
    }
    return taken
  }

  /** @param reply of the decision that has taken the messages along */
  function noteDecided(batch: Batch, reply: unknown): void {
    if (!unconfirmed.some(({ batches }) => batches.has(batch))) return
    for (const { batches } of unconfirmed) batches.delete(batch)
    const { reservation, messages } = batch
    const applied = settledIn(reply)
    const requests = messages.map(({ request }) => request)
    const isSettled =
      applied === requests.reduce((sum, request) => sum + identitiesOf(reservation, request), 0)
    if (isSettled) {
      const verdicts = debtsIn(reply, reservation)
      stats.answered(reservation, requests, { applied, verdicts }, batch.isRepeated)
      leave(messages)
      return
    }
    if (apartSince.size >= MAX_APART) apartSince.clear()
    if (applied === 0) apartSince.set(reservation.rules[0]!.key, now())
    const key = `${callKeyOf(reservation)}\n`
    const waiting = ready.get(key)
    ready.set(key, {
      ...{ reservation, since: waiting?.since ?? now(), answers: 0, errors: 0, isApart: true },
      messages: [...(waiting?.messages ?? []), ...messages],
      isRepeated: waiting?.isRepeated || batch.isRepeated || applied > 0,
    })
  }

  /** @param sentAt (ms). If it was sent again since then, that has no answer yet */
  function noteError(batch: Batch, sentAt: number, { code, message }: GatewayError): void {
    const isOfScript = code === 'ERR_STORE_REFUSED' || code === 'ERR_STORE_REPLY_INVALID'
    if (batch.since === sentAt && sent.delete(batch)) {
      if (isOfScript) batch.errors += 1
      failed[Math.min(batch.errors, failed.length - 1)]!.add(batch)
    }
    if (!isOfScript || isErrorLogged) return
    isErrorLogged = true
    log('warn', 'settlement-refused', { detail: REFUSED + message })
  }

  const prepare = ({ reservation, messages }: Batch) => {
    const requests = messages.map(({ request, lostAt }) =>
      lostAt === undefined ? request : { ...request, lostForMs: now() - lostAt + onTheWayMs },
    )
    return prepareSettle({ ...settlementFor(reservation, wallClock()), requests, now: writeAt?.() })
  }

  const rider: Rider = {
    isMeasured: true,
    repeat: chore => repeated(chore, now),

    load({ calls, isAlone, isAnswering }) {
      // Beside decisions, messages do not load a store that fails.
      if (!isAlone && !isAnswering) return undefined
      const time = now()
      const along = takeAlong(calls, time)
      const batches = take(isAlone ? MAX_CALLS_ALONE : MAX_CALLS_BESIDE, time)
      for (const batch of [...along.map(({ batch }) => batch), ...batches]) {
        batch.since = time
        sent.add(batch)
      }
      const prepared = batches.map(prepare)
      return {
        calls: prepared.map(({ call }) => call),
        isFirst: true,
        done(replies, carried = []) {
          for (const { batch, place } of along) {
            const reply = carried[place]
            if (reply instanceof GatewayError) noteError(batch, time, reply)
            else noteDecided(batch, reply)
          }
          for (const [i, result] of decodeReplies(prepared, replies).entries()) {
            const batch = batches[i]!
            if (result instanceof GatewayError) noteError(batch, time, result)
            if (result instanceof GatewayError || !unconfirmed.some(({ batches }) => batches.has(batch)))
              continue
            batch.answers += 1
            onReport?.(batch.reservation.rules, result)
            const { messages } = batch
            const known = messages.filter(({ lostAt }) => lostAt === undefined).map(({ request }) => request)
            const mayBeRepeated = batch.isRepeated || known.length < messages.length
            stats.answered(batch.reservation, known, result, mayBeRepeated)
            // A decision whose reply was lost may still be on its way, so what is not found is looked for again.
            const isUnanswered = ({ lostAt }: OutgoingMessage) =>
              lostAt !== undefined && batch.answers === 1 && result.applied < messages.length
            batch.messages = messages.filter(isUnanswered)
            leave(messages.filter(message => !isUnanswered(message)))
            if (batch.messages.length === 0) for (const { batches } of unconfirmed) batches.delete(batch)
            for (const { lostAt, onConfirmed } of messages)
              if (lostAt === undefined) onConfirmed?.(time, result.applied === 0)
          }
        },
      }
    },

    aloneAfterMs() {
      const time = now()
      const leftMs = (batch: Pick<Batch, 'since'> | undefined, ms: number) =>
        batch === undefined
          ? Number.POSITIVE_INFINITY
          : isWithin(ms, batch.since, time)
            ? batch.since + ms - time
            : 0
      const ms = Math.min(
        leftMs(ready.values().next().value, SEND_DELAY_MS),
        leftMs(renewals.values().next().value, SEND_DELAY_MS),
        ...unconfirmed.map(({ batches, ms }) => leftMs(batches.values().next().value, repeatAfterMs(ms))),
      )
      return Number.isFinite(ms) ? ms : undefined
    },
  }

  return {
    rider,

    /** Sends a message about a reservation with the next trip. @returns false if it was dropped, because too many messages wait */
    add(reservation: Reservation, message: OutgoingMessage): boolean {
      const kind = kindOf(message)
      if (size[kind] >= MAX_MESSAGES) {
        if (dropped[kind] === 0) {
          const detail = kind === 'renewals' ? RENEWALS_OVERFLOW : OVERFLOW
          log('warn', `${kind}-dropped`, { detail })
        }
        dropped[kind] += 1
        giveUp(reservation, [message])
        return false
      }
      const key = callKeyOf(reservation)
      const waiting = renewals.get(key)
      const { id } = message.request
      if (waiting?.byId.delete(id)) size.renewals -= 1
      size[kind] += 1
      if (kind === 'renewals') {
        if (waiting) waiting.byId.set(id, message)
        else renewals.set(key, { reservation, byId: new Map([[id, message]]), since: now() })
        return true
      }
      if (waiting?.byId.size === 0) renewals.delete(key)
      const batch = ready.get(key)
      if (batch) batch.messages.push(message)
      else ready.set(key, { reservation, messages: [message], since: now(), answers: 0, errors: 0 })
      return true
    },

    /**
     * Sends everything, before a process ends. After 2 s, drops the rest, whose timers would keep the process running.
     * @param send makes a trip for the rider
     */
    async flush(
      send: (rider: Rider) => Promise<boolean>,
      sleep: (ms: number) => Promise<void>,
    ): Promise<void> {
      isStopping = true
      const until = now() + MAX_STOP_MS
      while (size.settlements + size.renewals > 0 && now() < until) {
        const isDue = ready.size + renewals.size > 0 || rider.aloneAfterMs!() === 0
        const isSent = isDue && (await send(rider).catch(() => false))
        if (!isSent) await sleep(STOP_CHECK_MS)
      }
      isStopping = false
      for (const waiting of [ready, renewals, ...unconfirmed.map(({ batches }) => batches)]) waiting.clear()
      Object.assign(size, { settlements: 0, renewals: 0 })
    },

    /** Messages that wait or are not confirmed, and settlements that were dropped because too many waited. */
    get backlog() {
      return { waiting: size.settlements + size.renewals, dropped: dropped.settlements }
    },
  }
}

const kindOf = ({ request }: OutgoingMessage) => (request.isRenewal ? 'renewals' : 'settlements')

/** For how many identities a request has reserved. */
const identitiesOf = ({ rules }: Reservation, { amounts }: SettledRequest) =>
  new Set(rules.filter((_, i) => amounts[i]!.reserved > 0).map(({ key }) => key)).size

/** A settlement of a single request. */
export const settlementOf = (
  reservation: Reservation,
  request: Omit<SettledRequest, 'id' | 'spentAt'>,
  nowMs: number,
  now?: number,
): Settlement => ({
  ...settlementFor(reservation, nowMs),
  requests: [{ id: reservation.id, spentAt: reservation.spentAt, ...request }],
  now,
})
