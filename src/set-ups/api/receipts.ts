/**
 * Signed receipts of decisions. A token that may use a limit must not be able to write a receipt itself: it could give back what others have
 * spent. All isolates have the key, because they derive it from the token of the store; a new token of the store ends the old receipts.
 * Environments can share the store, so the key is of one: else what a test has spent would be given back in production.
 */
import type { Config } from '../../config/compile.ts'
import { sha256 } from '../../sha256.ts'
import type { Held } from '../limits/held.ts'
import type { LimitDecision, RefundableDecision, SettleableDecision } from '../limits/limiter-shape.ts'
import { decisionOfReceipt, type Receipt, receiptOf } from '../rpc/receipt.ts'
import { invalidInput } from './problems.ts'

export interface SignedReceipt extends Receipt, Partial<Pick<Held, 'held'>> {
  signature: string
}

export interface SignedReceipts {
  receiptOf(decision: LimitDecision & Partial<Held>): SignedReceipt
  /** @param limit of the config, which the receipt must be of @throws ApiError; TypeError if the identity does not fit its rules */
  decisionOf(receipt: unknown, limit: string): RefundableDecision & SettleableDecision
}

const SIGNATURE_LENGTH = 32

/** @param secret the token of the store */
export function createSignedReceipts(
  { limits, environment = '' }: Pick<Config, 'limits' | 'environment'>,
  secret: string,
): SignedReceipts {
  const key = sha256(`receipts of the API ${environment} ${secret}`)
  // Twice, so that a caller cannot append to what was signed.
  const sign = (receipt: unknown) => sha256(key + sha256(key + textOf(receipt))).slice(0, SIGNATURE_LENGTH)
  function decisionOf(signed: unknown, limit: string) {
    const { signature, ...receipt } = signed as Partial<SignedReceipt>
    // By their digests, so that the time of the comparison tells nothing about the right signature.
    const isSigned = isShallow(receipt, 3) && sha256(String(signature)) === sha256(sign(receipt))
    // `receiptOf` has written its fields, so they are not checked again. No receipt is recognized: what a repeated refund of a part gives
    // back must not depend on the isolate that gets it.
    if (isSigned && receipt.limit === limit) return decisionOfReceipt(receipt as Receipt, limits.get(limit)!)
    throw invalidInput(
      '/receipt',
      'No decision of this limit has returned this receipt. Send it unchanged, to the limit that it is of.',
    )
  }
  return {
    receiptOf(decision) {
      const { held } = decision
      const receipt = { ...receiptOf(decision, limits), ...(held && { held }) }
      return { ...receipt, signature: sign(receipt) }
    },
    decisionOf,
  }
}

/** Whether objects are in one another at most so often: `numbers` of a receipt has three levels. The text of deeper ones could overflow the stack. */
const isShallow = (value: unknown, levels: number): boolean =>
  !isObject(value) || (levels > 0 && Object.values(value).every(each => isShallow(each, levels - 1)))

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null

/** JSON with sorted members, because a client may have stored them in another order. */
function textOf(value: unknown): string {
  if (!isObject(value) || Array.isArray(value)) return JSON.stringify(value)
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))
  return `{${members.map(([name, each]) => `${JSON.stringify(name)}:${textOf(each)}`).join()}}`
}
