/** Sends questions to the store, several in one HTTP request, and checks each answer. */
import { GatewayError } from '../errors.ts'
import { type DecideVerb, decodeDecide, encodeDecide } from '../script/decide.ts'
import type { Evaluation, Outcome } from '../script/evaluation.ts'
import { type Changed, decodeRefund, encodeRefund, type Refund } from '../script/refund.ts'
import { decodeReset, encodeReset, type Reset } from '../script/reset.ts'
import type { Store, StoreCall } from '../store/store.ts'

/** One call to the store, and how its reply is read. */
export interface Question<Answer> {
  call: StoreCall
  /** @throws GatewayError ERR_STORE_REPLY_INVALID */
  read(reply: unknown): Answer
}

export function toDecide(evaluation: Evaluation, verb?: DecideVerb): Question<Outcome> {
  return { call: encodeDecide(evaluation, verb), read: reply => decodeDecide(reply, evaluation, verb) }
}

export function toRefund(refund: Refund): Question<Changed> {
  return { call: encodeRefund(refund), read: reply => decodeRefund(reply, refund) }
}

export function toReset(reset: Reset): Question<Changed> {
  return { call: encodeReset(reset), read: reply => decodeReset(reply, reset) }
}

/** The consumer that a pointer leads to; undefined where there is no such pointer. */
export function toLookUp(pointerKey: string): Question<string | undefined> {
  return {
    call: { command: 'GET', key: pointerKey },
    read(reply) {
      if (reply === null || typeof reply === 'string') return reply ?? undefined
      throw new GatewayError('ERR_STORE_REPLY_INVALID', "The store's reply has no text.")
    },
  }
}

/**
 * All in one HTTP request; none is sent when there are no questions.
 * @returns the answers in order; in the place of one that failed by itself (one slot of a cluster is gone) its error
 * @throws GatewayError as Store.run
 */
export async function askAll<Answer>(
  store: Store,
  questions: readonly Question<Answer>[],
  isMoot?: () => boolean,
): Promise<(Answer | GatewayError)[]> {
  if (questions.length === 0) return []
  const calls = questions.map(({ call }) => call)
  const replies = await store.run(calls, isMoot)
  if (replies.length !== questions.length) {
    throw new GatewayError('ERR_STORE_REPLY_INVALID', `The store's reply has ${replies.length} answers.`)
  }
  return questions.map(({ read }, i) => {
    const reply = replies[i]
    if (reply instanceof GatewayError) return reply
    try {
      return read(reply)
    } catch (error) {
      if (error instanceof GatewayError) return error
      throw error
    }
  })
}

/** @param isMoot as for Store.run @throws GatewayError as Store.run, and in the place of the answer */
export async function ask<Answer>(
  store: Store,
  question: Question<Answer>,
  isMoot?: () => boolean,
): Promise<Answer> {
  const [answer] = await askAll(store, [question], isMoot)
  if (answer instanceof GatewayError) throw answer
  return answer as Answer
}
