/**
 * Who calls: the credential as presented and the address. No I/O: whether the credential is good is found out in
 * the same trip that counts the request.
 */
import type { GatewayRule } from '../config/compile.ts'
import { API_KEY_PREFIX, consumerOfApiKey, digestApiKey } from '../credentials/api-key.ts'
import { type CountedRule, count } from '../limiter/count.ts'
import type { Unauthenticated } from '../limiter/decide.ts'
import type { Evaluation } from '../limiter/wire.ts'
import { addressStateKey, consumerStateKey, credentialKey } from '../store/keys.ts'
import { addressIdentity, clientAddress } from './address.ts'

export interface Caller {
  /** As counted by. */
  address: string
  /** Known before the store is asked: nobody may come like this. */
  refusal?: Unauthenticated
  /** Absent: anonymous. */
  credential?: {
    /** Whose key it claims to be; true once the store has admitted the request. */
    consumer: string
    /** Key of the credential's record in the store. */
    key: string
  }
}

/** @param rules those that match the request: they say whether it may come without a credential */
export async function identify(request: Request, rules: readonly GatewayRule[]): Promise<Caller> {
  const address = addressIdentity(clientAddress(request))
  const presented = presentedKey(request.headers)
  if (!presented?.isOurs) {
    if (rules.some(rule => rule.anonymous)) return { address }
    return { address, refusal: { kind: 'unauthenticated', reason: presented ? 'malformed' : 'missing' } }
  }

  const consumer = consumerOfApiKey(presented.text)
  if (!consumer) return { address, refusal: { kind: 'unauthenticated', reason: 'malformed' } }
  return {
    address,
    credential: { consumer, key: credentialKey(consumer, await digestApiKey(presented.text)) },
  }
}

/** What the store is asked: is the credential good, and may this caller pass under the rules that can count it? */
export function question(
  caller: Caller,
  rules: readonly GatewayRule[],
  plans: readonly string[],
): Evaluation {
  const credentialKey = caller.credential?.key
  return { rules: countFor(caller, rules), plans, ...(credentialKey && { credentialKey }) }
}

function countFor(caller: Caller, rules: readonly GatewayRule[]): CountedRule[] {
  return rules.flatMap(rule => {
    const key = stateKey(rule, caller)
    const isForPlansOnly = rule.match.plans !== undefined
    return key && (caller.credential || !isForPlansOnly) ? [count(rule, key)] : []
  })
}

function stateKey(rule: GatewayRule, { address, credential }: Caller): string | undefined {
  switch (rule.by) {
    case 'address':
      return addressStateKey(address)
    case 'consumer':
      return credential && consumerStateKey(credential.consumer)
  }
}

/**
 * `X-API-Key` is only for our keys; a bearer token may be one of them, or the origin's own affair. A key of ours that
 * is broken is still ours: it is never taken for no key.
 */
function presentedKey(headers: Headers): { text: string; isOurs: boolean } | undefined {
  const apiKey = headers.get('x-api-key')
  if (apiKey !== null) return { text: apiKey.trim(), isOurs: true }
  const bearer = /^Bearer\s+(.+)$/i.exec(headers.get('authorization') ?? '')?.[1]?.trim()
  return bearer ? { text: bearer, isOurs: bearer.startsWith(API_KEY_PREFIX) } : undefined
}

/** At the beginning of a word, so that an origin's own token that holds these letters is left alone. */
const OUR_KEY = new RegExp(`(^|[\\s,"])${API_KEY_PREFIX}`)

/** Takes every key of ours out, also one that was not looked at because another header came first. */
export function removeCredentials(headers: Headers): void {
  headers.delete('x-api-key')
  if (OUR_KEY.test(headers.get('authorization') ?? '')) headers.delete('authorization')
}
