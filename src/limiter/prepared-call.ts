/** Typed calls to the store: each has its arguments and the decoder of its reply. Several calls go in one HTTP request. */
import { GatewayError } from '../errors.ts'
import { type DecideVerb, decodeDecide, encodeDecide } from '../script/decide.ts'
import type { Evaluation, Outcome } from '../script/evaluation.ts'
import { decodePause, encodePause, PAUSE, type Pause, type PauseResult } from '../script/pause.ts'
import { type ChangeResult, decodeRefund, encodeRefund, type Refund } from '../script/refund.ts'
import { decodeReset, encodeReset, RESET, type Reset } from '../script/reset.ts'
import { decodeSettle, encodeSettle, type Settlement, type SettleResult } from '../script/settle.ts'
import type { CallListener, Script, Store, StoreCall } from '../store/store.ts'

/** A call to the store, and the function that checks and decodes its reply. */
export interface PreparedCall<Result> {
  call: StoreCall
  /** @throws GatewayError ERR_STORE_REPLY_INVALID */
  decode(reply: unknown): Result
}

/** Prepares the decision of an evaluation. @param verb default `decide`; `peek` spends nothing */
export function prepareDecide(evaluation: Evaluation, verb?: DecideVerb): PreparedCall<Outcome> {
  const plain = {
    call: encodeDecide(evaluation, verb),
    decode: (reply: unknown) => decodeDecide(reply, evaluation, verb),
  }
  return evaluation.ruleSet.reservations?.addTo(plain, evaluation) ?? plain
}

export function prepareRefund(refund: Refund): PreparedCall<ChangeResult> {
  return { call: encodeRefund(refund), decode: reply => decodeRefund(reply, refund) }
}

export const prepareReset = (reset: Reset): PreparedCall<ChangeResult> => prepareResetBy(RESET, reset)

/** @param script that of resets, which a built Worker has compiled */
export function prepareResetBy(script: Script, reset: Reset): PreparedCall<ChangeResult> {
  return { call: encodeReset(reset, script), decode: reply => decodeReset(reply, reset) }
}

export const preparePause = (pause: Pause): PreparedCall<PauseResult> => preparePauseBy(PAUSE, pause)

/** @param script that of pauses, which a built Worker has compiled */
export function preparePauseBy(script: Script, pause: Pause): PreparedCall<PauseResult> {
  return { call: encodePause(pause, script), decode: decodePause }
}

export function prepareSettle(settlement: Settlement): PreparedCall<SettleResult> {
  return { call: encodeSettle(settlement), decode: reply => decodeSettle(reply, settlement) }
}

/** Prepares the lookup of the consumer that an opaque key belongs to; the result is undefined if the key is unknown. */
export function prepareLookUp(pointerKey: string): PreparedCall<string | undefined> {
  return {
    call: { command: 'GET', key: pointerKey },
    decode(reply) {
      if (reply === null || typeof reply === 'string') return reply ?? undefined
      throw new GatewayError('ERR_STORE_REPLY_INVALID', "The store's reply has no text.")
    },
  }
}

/**
 * Runs all calls in one HTTP request. Without calls, no request is sent.
 * @param listener as for Store.run
 * @returns the results in order. If a call failed by itself (for example, one slot of a cluster is down), its place has the error
 * @throws GatewayError as Store.run
 */
export async function runCalls<Result>(
  store: Store,
  preparedCalls: readonly PreparedCall<Result>[],
  listener?: CallListener,
): Promise<(Result | GatewayError)[]> {
  if (preparedCalls.length === 0) return []
  const calls = preparedCalls.map(({ call }) => call)
  const replies = await store.run(calls, listener)
  if (replies.length !== preparedCalls.length) {
    throw new GatewayError(
      'ERR_STORE_REPLY_INVALID',
      `The store's reply has ${replies.length} answers to ${preparedCalls.length} calls.`,
    )
  }
  return decodeReplies(preparedCalls, replies)
}

/** Decodes the replies to the calls, in order. The place of a call that has failed by itself has the error. */
export function decodeReplies<Result>(
  preparedCalls: readonly PreparedCall<Result>[],
  replies: readonly unknown[],
): (Result | GatewayError)[] {
  return preparedCalls.map(({ decode }, i) => {
    const reply = replies[i]
    if (reply instanceof GatewayError) return reply
    try {
      return decode(reply)
    } catch (error) {
      if (error instanceof GatewayError) return error
      throw error
    }
  })
}

/** @throws GatewayError as Store.run, and ERR_STORE_REPLY_INVALID for a reply that cannot be decoded */
export async function runCall<Result>(
  store: Store,
  preparedCall: PreparedCall<Result>,
  listener?: CallListener,
): Promise<Result> {
  const [result] = await runCalls(store, [preparedCall], listener)
  if (result instanceof GatewayError) throw result
  return result as Result
}
