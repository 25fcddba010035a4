/**
 * What this process knows about one limit of an API, and how long the next call should wait for it. Other processes spend from the same
 * limit, and are visible only as units that are gone. All times are monotonic, in ms.
 */
import type { PolicyState } from './fields.ts'

/**
 * How long a call has to wait (ms), and whether the limit would refuse it now. Otherwise, the wait only spreads the calls, or can end
 * at any time. Then it is said apart whether the limit is used up.
 */
export type Wait = [ms: number, isNeeded: boolean, isUsedUp?: boolean]

/** A call that waits. */
export interface Turn {
  /** Earlier calls have lower numbers. */
  number: number
  /** When it looks again at the latest, and how it looks at once. Set as soon as it waits. */
  dueAt?: number
  look?: () => void
}

export const NEVER = Number.POSITIVE_INFINITY

/** How long calls wait for the reply to a probe, and for the first reply of an unknown origin (ms). */
const PROBE_MS = 10_000
const FIRST_MS = 1_000
/**
 * If that first reply takes longer than this (ms), one more call is sent each ms, until so many are in flight: it may be a limit in flight.
 * Most limits of a rate reply sooner, and cost no refusal.
 */
const FIRST_ALONE_MS = 80
const MOST_AT_FIRST = 32
/** After this time without a call or a reply, one call goes out whatever the server has said before (ms). */
const STALE_MS = 3_600_000
/** The longest wait that only spreads calls (ms). */
const MAX_SPREAD_MS = 5_000
/**
 * In windows longer than this (ms), calls are not spread as long as more than half of the budget is left, or three quarters if units come
 * back only after a whole window. An eighth of the units left can be on its way: other processes may be about to take as many.
 */
const SHORT_WINDOW_MS = 5_000
/** Spending counts for four windows of at most this length (ms). */
const MAX_WINDOW_MS = 10_000
/**
 * Under a limit of units in flight, a process that was refused keeps as many calls in flight as it has. It tries more after a quarter to
 * three quarters of the time that a call takes (at most of 2 s). Refusals come soon: if twice the time of the last one passes without
 * another, it tries twice as many, and so on. After its first reply, it tries sooner. Without a refusal so far, that time is short.
 */
const GROWTH_MS = 2_000
const FIRST_GROWTH_MS = 40
/** How often a process asks that has no unit (ms). */
const LEAST_ASKED_MS = 600
/** A process that shares a limit takes at least this share of it. */
const LEAST_SHARE = 1 / 32
/** Whole seconds in `t` show only changes of more than this (ms). */
const ROUNDING_MS = 1_500
/**
 * If units come back one by one, this part of the budget is kept: below it, calls slow down; above it, they speed up. If they come back
 * after a whole window, what is kept is never used.
 */
const RESERVE = 0.15
const LAGGING_RESERVE = 0.07

export type Budget = ReturnType<typeof createBudget>

/** @param firstEndsAt until then, few calls go to an unknown origin. It begins when the first one is sent */
export function createBudget(name: string, random: () => number, firstEndsAt = 0) {
  /** Calls sent, and the latest of them whose reply has arrived. */
  let sent = 0
  let seen = 0
  let sentAt = -NEVER

  let pausedUntil = -NEVER
  let pauseMs = 0
  /** Refusals in a row. Those of calls that were on their way together are one. */
  let refusals = 0
  /** The call that probes, after a pause, whether the limit admits again. 0: none has to; infinite: it has not been sent. */
  let probe = 0
  let probeEndsAt = -NEVER
  let unit = 'requests'
  /**
   * Units in flight: of this process, how many of them it keeps, and since when. It tries more after this part of the time that its calls
   * take (ms), but not sooner than after `leastMs`.
   */
  let flying = 0
  let kept = 0
  let keptAt = -NEVER
  let leastMs = FIRST_GROWTH_MS
  let part = 0
  let tookMs = GROWTH_MS
  /** When it has tried one more, and the time in which a refusal would have come. */
  let triedAt = -NEVER
  let stepMs = GROWTH_MS / 4
  let quota = 0
  let windowMs = 0
  /** Units left, as the last reply said, and when. */
  let left: number | undefined
  let readAt = -NEVER
  let readSentAt = 0
  /** When the count starts again: the earliest time that replies allow. */
  let resetAt = NEVER
  let rolledAt = -NEVER
  /** Whether units come back one by one (a bucket, a sliding window), and not all at `resetAt`; and whether replies have shown it. */
  let slides = false
  let isSure = false
  /** Whether units come back a whole window after they were spent. */
  let lags = false
  /** Units that this process and others have spent lately: sums that decay. At first, other processes are assumed. */
  let mine = 0
  let theirs = 3
  /** When the last call was due, and how much its distance to the next one is varied. */
  let dueAt = -NEVER
  let jitter = 1

  /** Lets one call find out whether the limit admits. */
  function askOnce(): void {
    probe = NEVER
    probeEndsAt = -NEVER
  }

  /** Learns from two replies how units come back, and how many others have spent. */
  function compare(before: number, after: number, own: number, resetMs: number, now: number): void {
    const most = Math.max(quota, before, after)
    const decay = Math.exp((readAt - now) / horizon())
    mine = mine * decay + own
    theirs *= decay
    const nextReset = now + resetMs
    if (after > before + rate() * (now - readSentAt) + 1 + most / 10) {
      // More than can come back one by one: a new window.
      slides = lags = false
      resetAt = Math.min(nextReset, now + (windowMs || NEVER))
      return
    }
    slides ||= rate() > 0 && nextReset < NEVER && nextReset > Math.min(resetAt, now + windowMs) + ROUNDING_MS
    isSure ||= after > before + 1
    const refilled = slides ? refill(before) * (now - readAt) : 0
    // Rounding adds up to nothing over several replies.
    theirs = Math.max(0, theirs + Math.min(most, before + refilled) - after - own)
    if (slides || nextReset < resetAt) resetAt = nextReset
  }

  /** Units that come back per ms, on average. */
  const rate = () => windowMs && quota / windowMs

  /** Units that come back per ms now. */
  const refill = (units: number) => (lags ? (quota - units) / windowMs : rate())

  /** Those of them that other processes do not take. */
  const growth = () => Math.max(refill(left!) - theirs / horizon(), rate() * LEAST_SHARE)

  const horizon = () => 4 * Math.min(windowMs || MAX_WINDOW_MS, MAX_WINDOW_MS)

  /** The share of this process in what is spent. One unit more, so that a share can grow. */
  const share = () => Math.max(LEAST_SHARE, (mine + 1) / (mine + theirs + 1))

  /** Begins a new window, if it is time. */
  function roll(now: number): void {
    if (slides || now < resetAt) return
    rolledAt = readAt = readSentAt = resetAt
    left = quota
    // A thousandth later each time, because clocks differ.
    const length = quota && windowMs * 1.001
    if (length) resetAt += Math.ceil((now - resetAt + 1) / length) * length
    else {
      // One call finds out when the window ends.
      left = undefined
      resetAt = NEVER
      askOnce()
    }
  }

  /** Units that are probably left. */
  function level(now: number): number {
    const known = left! - (sent - seen)
    const passed = now - readAt
    if (unit !== 'requests') return left!
    return slides ? Math.min(quota, known + growth() * passed) : known - (theirs / horizon()) * passed
  }

  /** The distance of calls that spreads the units left (ms). */
  function interval(now: number): number {
    if (left === undefined || resetAt === NEVER) return 0
    const units = Math.max(0, level(now))
    let total = Math.min((units + 0.5) / Math.max(1, resetAt - now), 2 * rate() || NEVER)
    if (slides) {
      const part = units / (quota * (lags ? LAGGING_RESERVE : RESERVE))
      total = 0.97 * rate() * (part < 1 ? 0.4 + 0.6 * part : Math.min(1.15, part))
    }
    return Math.min(MAX_SPREAD_MS, 1 / (total * share()))
  }

  /** When the next call can go to an origin from which no reply has come. A call that is not repeated if it is refused waits for a reply. */
  const firstAt = (isRepeated: boolean) =>
    isRepeated && flying < MOST_AT_FIRST ? firstEndsAt - FIRST_MS + FIRST_ALONE_MS + flying : firstEndsAt

  const countsInFlight = () => unit === 'concurrent-requests'

  /** How long the next call waits for a unit in flight: until this process can try one more, or a call ends. */
  function waitInFlight(now: number): Wait {
    const more = flying - kept + 1
    const growthMs = Math.min(GROWTH_MS, Math.max(leastMs, (flying || seen) && tookMs * part))
    const grownAt = more > 1 ? triedAt + Math.log2(more) * Math.min(stepMs, tookMs / 8) : keptAt + growthMs
    const at = flying < (quota || NEVER) ? grownAt : NEVER
    return more <= 0 || now >= at ? [0, false] : [Math.min(at - now, GROWTH_MS), false, true]
  }

  return {
    name,
    countsInFlight,
    line: new Set<Turn>(),

    /** @returns the number of the call */
    send(now: number): number {
      sent++
      if (flying++ === kept) triedAt = now
      firstEndsAt = Math.min(firstEndsAt, now + FIRST_MS)
      if (probe > 0) {
        probe = Math.min(probe, sent)
        probeEndsAt = now + PROBE_MS
      }
      // Timers are late: that does not delay the calls behind.
      const distance = interval(now)
      dueAt = Math.max(Math.min(now, dueAt + distance * jitter), now - distance / 2)
      jitter = 0.97 + 0.06 * random()
      sentAt = now
      return sent
    },

    /** A call has got no reply: the next call can probe. */
    release(): void {
      flying--
      probeEndsAt = -NEVER
    },

    /**
     * A reply. After a refusal, calls stop for this time, or until the end of a longer pause.
     * @param refusedMs the time that the server has named. Less than 0.1 s: 1 s, doubled with each refusal of a probe, up to 64 s. Absent: no refusal
     * @returns the pause (ms). 0 for a limit of units in flight: the next call goes when one ends
     */
    settle(call: number, callSentAt: number, now: number, refusedMs?: number): number {
      flying--
      if (countsInFlight()) {
        if (refusedMs === undefined) {
          // How long calls take is known now. Units that came free since the refusals may be left.
          if (seen === 0) {
            keptAt = now
            part /= 3
          }
          tookMs += (Math.min(GROWTH_MS, now - callSentAt) - tookMs) / (seen++ ? 8 : 1)
        } else {
          // While other processes have all units, it asks less and less often. Calls that were on their way together are refused once.
          if (flying > 0) leastMs = FIRST_GROWTH_MS / 4
          else if (callSentAt >= keptAt) leastMs = Math.min(LEAST_ASKED_MS, leastMs * 2)
          stepMs = FIRST_GROWTH_MS / 4 + 2 * (now - callSentAt)
          part = 0.25 + random() / 2
          kept = flying
          keptAt = now
        }
        return 0
      }
      // A call that was sent before the pause says nothing about its end.
      const isNews = call >= probe
      firstEndsAt = 0
      seen = Math.max(seen, call)
      if (refusedMs !== undefined) {
        if (isNews) refusals++
        // 1 s to 1 min.
        const ms = refusedMs >= 100 ? refusedMs : 500 * 2 ** Math.min(refusals, 7)
        // Other processes were refused at the same time.
        const until = now + ms + random() * Math.min(ms / 10, 1_000)
        if (until > pausedUntil) [pausedUntil, pauseMs] = [until, ms]
        askOnce()
      } else if (isNews) {
        probe = refusals = 0
        pausedUntil = Math.min(pausedUntil, now)
      }
      return pausedUntil - now
    },

    /** How long the next call should wait. @param isRepeated whether it is sent again if it is refused */
    wait(now: number, isRepeated: boolean): Wait {
      if (countsInFlight()) return waitInFlight(now)
      const isStale = now - Math.max(readAt, sentAt) >= STALE_MS
      const alone = Math.max(probe && probeEndsAt, sent && firstAt(isRepeated))
      if (now < alone) return [alone - now, false, probe > 0]
      if (now < pausedUntil && !isStale) return [pausedUntil - now, true]
      const unseen = sent - seen
      // Without figures, calls go one at a time after a pause, so that one call at most is refused. Whenever four pauses pass without a
      // refusal, twice as many can be on their way.
      if (left === undefined)
        return pauseMs &&
          now < sentAt + PROBE_MS &&
          unseen &&
          unseen + 1 > 2 ** ((now - pausedUntil) / pauseMs / 4)
          ? [pauseMs, false]
          : [0, false]
      roll(now)
      if (isStale || left === undefined) return [0, false]
      const units = level(now)
      if (units < 1) {
        const reset = resetAt - now
        const ms = slides && isSure ? Math.min(reset, (1 - units) / growth()) : reset
        return ms > 0 && ms < NEVER ? [ms + 1, true] : [0, false]
      }
      const isFree =
        unit !== 'requests' ||
        ((windowMs || NEVER) > SHORT_WINDOW_MS &&
          units > quota * (lags ? 0.75 : 0.5) &&
          unseen < Math.max(1, units / 8))
      return isFree ? [0, false] : [dueAt + interval(now) * jitter - now, false]
    },

    /** Reads what a reply says. @param call its number, and when it was sent */
    read(state: PolicyState, call: number, callSentAt: number, now: number): void {
      const own = call - seen
      unit = state.unit
      // A limit of 0 cannot be true of a server that answers.
      quota = state.quota || quota
      windowMs = state.windowMs || windowMs
      if (countsInFlight()) {
        if (keptAt < 0) [kept, keptAt] = [flying, now]
        return
      }
      // An older reply.
      if (state.left === undefined || own < 0) return
      roll(now)
      seen = call
      // A reply from the window before.
      if (callSentAt < rolledAt) return
      const resetMs = state.resetMs ?? NEVER
      if (rate() > 0 && state.resetMs! > windowMs) lags = slides = isSure = true
      if (left === undefined) {
        // In a short window, whole seconds do not show whether the reset moves.
        slides ||= rate() > 0 && windowMs <= 2_000
        resetAt = now + resetMs
      } else compare(left, state.left, own, resetMs, now)
      quota ||= state.left
      left = state.left
      readAt = now
      readSentAt = callSentAt
    },
  }
}
