/** Encodes calls of signal.lua, and decodes its replies. signal.lua describes the wire format; signal-text.ts has the script. */
import { reportersKey, signalKey } from '../store/keys.ts'
import type { Script, ScriptCall } from '../store/store.ts'
import { formatTime, invalidReply, isField } from './wire.ts'

/** The state of a controller after a window. */
export interface WindowState {
  window: number
  text: string
}

/** The measurements of one isolate. */
export interface SignalReport {
  /** Name of the signal. */
  signal: string
  windowMs: number
  /** The sums of this isolate since its last report. */
  sums: readonly number[]
  /** The state that the isolate has computed, if the store does not have it. */
  state?: WindowState | undefined
  /** µs since the epoch. Absent: the clock of the store. */
  now?: number | undefined
}

/** The measurements of all isolates. */
export interface SignalSnapshot {
  /** By the clock of the store (µs). */
  at: number
  /** The last window that has ended. Absent if there is none. */
  closed?: { window: number; sums: readonly number[]; pushed?: PushedMean }
  /** The latest state of the controller. Absent if there is none. */
  state?: WindowState
}

/** The mean of the values that machines of the origin have pushed. */
export interface PushedMean {
  /** Mean over the reporters, in thousandths. */
  mean: number
  reporters: number
}

/** The value of one machine of the origin. */
export interface SignalPush {
  /** Name of the signal. */
  signal: string
  /** Name of the machine. */
  reporter: string
  /** In thousandths: 0 to 1000. */
  value: number
  /** After this time without another push, the value no longer counts. */
  staleAfterMs: number
  /** The utilization that this share of the machines reaches is the mean of the pushes; 0: the highest one. Absent: their mean. */
  busyShare?: number | undefined
  /** µs since the epoch. Absent: the clock of the store. */
  now?: number | undefined
}

/** The most sums of one signal. */
export const MAX_SUMS = 16

/** The largest value of a sum. Up to this value doubles are exact. */
export const MAX_SUM = 2 ** 52

/** The text of a state. The script stores it between semicolons. */
const STATE = /^[0-9A-Za-z .-]{0,100}$/

/** Whether the script can store this text as the state of a controller. */
export const isStateText = (text: unknown): text is string => typeof text === 'string' && STATE.test(text)

/**
 * Encodes a report as a call of the script.
 * @throws TypeError for values that the script could not store
 */
export function encodeReport(
  script: Script,
  { signal, windowMs, sums, state, now }: SignalReport,
): ScriptCall {
  const isSum = (sum: number) => Number.isInteger(sum) && sum >= 0 && sum <= MAX_SUM
  if (sums.length === 0 || sums.length > MAX_SUMS || !sums.every(isSum)) {
    throw new TypeError(`A report must have 1 to ${MAX_SUMS} sums: integers from 0 to 2^52.`)
  }
  if (!isDuration(windowMs)) throw new TypeError('A window must be a whole number of ms.')
  if (state && !isStateText(state.text)) {
    throw new TypeError('A state must have at most 100 characters: 0-9, A-Z, a-z, space, . and -.')
  }
  return {
    script,
    keys: [signalKey(signal)],
    args: [
      ...['report', formatTime(now), String(windowMs), String(sums.length), ...sums.map(String)],
      ...(state ? [String(state.window), state.text] : []),
    ],
  }
}

/** Reads what a report of zeros would read, and writes nothing. */
export const peekInsteadOf = ({ args: [, ...args], ...call }: ScriptCall): ScriptCall => ({
  ...call,
  args: ['peek', ...args],
})

/**
 * Decodes the reply to a report.
 * @param sums the number of sums in the report
 * @throws GatewayError ERR_STORE_REPLY_INVALID for any reply that the script cannot have sent
 */
export function decodeReport(reply: unknown, sums: number): SignalSnapshot {
  if (!Array.isArray(reply)) throw invalidReply('no report')
  const values = reply as unknown[]
  const [at, closed] = values
  const [stateAt, text, mean, reporters, ...more] = values.slice(2 + sums)
  const own = values.slice(2, 2 + sums)
  if (!isCount(at)) throw invalidReply('no time')
  if (!isCountOrNone(closed) || !isCountOrNone(stateAt)) throw invalidReply('no window number')
  if (!own.every(isCount)) throw invalidReply('a sum that is not a number')
  if (!isStateText(text)) throw invalidReply('a state that cannot be read')
  if (!isCountOrNone(mean) || mean > 1000 || !isCount(reporters) || more.length > 0)
    throw invalidReply('no mean')
  return {
    at,
    ...(closed >= 0 && {
      closed: { window: closed, sums: own, ...(mean >= 0 && { pushed: { mean, reporters } }) },
    }),
    ...(stateAt >= 0 && { state: { window: stateAt, text } }),
  }
}

/**
 * Encodes a push as a call of the script.
 * @throws TypeError for values that the script could not count
 */
export function encodePush(
  script: Script,
  { signal, reporter, value, staleAfterMs, busyShare, now }: SignalPush,
): ScriptCall {
  if (!Number.isInteger(value) || value < 0 || value > 1000 || !isDuration(staleAfterMs)) {
    throw new TypeError(
      'A push must have a value from 0 to 1000, and be stale after at least one ms. Both must be integers.',
    )
  }
  return {
    script,
    keys: [signalKey(signal), reportersKey(signal)],
    args: [
      ...['push', formatTime(now), reporter, String(value), String(staleAfterMs)],
      ...(busyShare === undefined ? [] : [String(busyShare)]),
    ],
  }
}

/**
 * Decodes the reply to a push.
 * @throws GatewayError ERR_STORE_REPLY_INVALID for any reply that the script cannot have sent
 */
export function decodePush(reply: unknown): PushedMean {
  const [at, mean, reporters] = Array.isArray(reply) ? (reply as unknown[]) : []
  if (!isCount(at)) throw invalidReply('no time')
  if (!isCount(mean) || mean > 1000 || !isCount(reporters)) throw invalidReply('no mean')
  return { mean, reporters }
}

const isDuration = (ms: number) => Number.isSafeInteger(ms) && ms > 0
const isCount = (value: unknown): value is number => isField(value) && value >= 0
const isCountOrNone = (value: unknown): value is number => isField(value) && value >= -1
