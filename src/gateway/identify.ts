/**
 * Who calls: the credential as presented and the address. No I/O: whether the credential is good is found out in
 * the same trip that counts the request.
 */
import type { Rule } from '../config/compile.ts'
import { API_KEY_PREFIX, consumerOfApiKey, digestApiKey } from '../credentials/api-key.ts'
import type { Unauthenticated } from '../limiter/decide.ts'
import type { CountedRule, Evaluation } from '../limiter/wire.ts'
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
    /** The request header that carried it. */
    header: CredentialHeader
  }
}

export type CredentialHeader = 'authorization' | 'x-api-key'

/** @param rules those that match the request: they say whether it may come without a credential */
export async function identify(request: Request, rules: readonly Rule[]): Promise<Caller> {
  const address = addressIdentity(clientAddress(request))
  const presented = presentedKey(request.headers)

  // A key of ours that is broken is never taken for no key, nor is anything in a header that is only for keys.
  const isMeantForUs = presented?.header === 'x-api-key' || presented?.text.startsWith(API_KEY_PREFIX)
  if (!presented || !isMeantForUs) {
    if (rules.some(rule => rule.anonymous)) return { address }
    return { address, refusal: { kind: 'unauthenticated', reason: presented ? 'malformed' : 'missing' } }
  }

  const consumer = consumerOfApiKey(presented.text)
  if (!consumer) return { address, refusal: { kind: 'unauthenticated', reason: 'malformed' } }
  const key = credentialKey(consumer, await digestApiKey(presented.text))
  return { address, credential: { consumer, key, header: presented.header } }
}

/** What the store is asked: is the credential good, and may this caller pass under the rules that can count it? */
export function question(caller: Caller, rules: readonly Rule[], plans: readonly string[]): Evaluation {
  const credentialKey = caller.credential?.key
  return { rules: countFor(caller, rules), plans, ...(credentialKey && { credentialKey }) }
}

function countFor(caller: Caller, rules: readonly Rule[]): CountedRule[] {
  return rules.flatMap(rule => {
    const key = stateKey(rule, caller)
    const isForPlansOnly = rule.match.plans !== undefined
    return key && (caller.credential || !isForPlansOnly) ? [{ rule, key }] : []
  })
}

function stateKey(rule: Rule, { address, credential }: Caller): string | undefined {
  switch (rule.by) {
    case 'address':
      return addressStateKey(address)
    case 'consumer':
      return credential && consumerStateKey(credential.consumer)
  }
}

/** `X-API-Key` is only for keys; a bearer token may be one of ours or the origin's own affair. */
function presentedKey(headers: Headers): { text: string; header: CredentialHeader } | undefined {
  const apiKey = headers.get('x-api-key')
  if (apiKey !== null) return { text: apiKey.trim(), header: 'x-api-key' }
  const bearer = /^Bearer +(\S+) *$/i.exec(headers.get('authorization') ?? '')?.[1]
  return bearer ? { text: bearer, header: 'authorization' } : undefined
}
