/** What the store knows of a caller, for `explain`: the plan, the overrides, and whether it is let in at all. Reads, and changes nothing. */
import type { Config, GatewayRule } from '../config/compile.ts'
import type { Credential } from '../credentials/credential.ts'
import {
  type ConsumerRecord,
  isBlocked,
  type Override,
  parseConsumer,
  parseCredential,
} from '../store/records.ts'
import type { AdminStore } from './admin-store.ts'
import { ANY_KEY } from './explain-caller.ts'
import { listKeys } from './keys.ts'
import { planName } from './names.ts'

export interface Stored extends ConsumerRecord {
  /** Of the key that was given; absent where none was, or none names a plan. */
  planOfKey?: string
  /** That keys of the consumer have, where none was given. */
  plansOfKeys: readonly string[]
  /** The key that was given has no record. */
  isUnknownKey: boolean
}

/** @throws AdminError `store` */
export type LookUp = (credential: Credential) => Promise<Stored | undefined>

/** @returns undefined for an opaque key: whose it is, is not known before the store is asked for a decision */
export function lookUpIn(store: AdminStore): LookUp {
  return async ({ subject, digest, consumer: name }) => {
    if (subject.kind === 'pointer' || subject.kind === 'failed') return undefined
    const { consumerKey } = subject
    const ofKey = subject.kind === 'key' && digest !== ANY_KEY ? subject.credentialKey : undefined
    const [consumer, key] = await store.askEach<string, string | null>(
      [consumerKey, ...(ofKey ? [ofKey] : [])],
      (pipeline, name) => pipeline.get(store.at(name)),
    )
    const record = parseCredential(key ?? '')
    const keys = digest === ANY_KEY ? await listKeys(store, name) : []
    return {
      ...parseConsumer(consumer ?? ''),
      ...(record?.plan && { planOfKey: record.plan }),
      plansOfKeys: [...new Set(keys.flatMap(({ plan }) => plan ?? []))],
      isUnknownKey: ofKey !== undefined && record === undefined,
    }
  }
}

/** Where the plan of a caller comes from; `assumed`: the store was not asked, and may have another. */
export type PlanSource = 'option' | 'token' | 'key' | 'consumer' | 'default' | 'assumed'

/** As the store would find it: that of the credential, else of the consumer, else the first. */
export function planOf(
  { plans }: Pick<Config, 'plans'>,
  {
    option,
    token,
    stored,
  }: { option?: string | undefined; token?: string | undefined; stored?: Stored | undefined },
): [plan: string, from: PlanSource] {
  if (option !== undefined) return [planName(option, plans), 'option']
  // A plan of a key that is no longer in the config counts as the first; a claim that names none is as if it were missing.
  if (token !== undefined && plans.includes(token)) return [token, 'token']
  const { planOfKey, plan } = stored ?? {}
  if (planOfKey !== undefined) return plans.includes(planOfKey) ? [planOfKey, 'key'] : [plans[0]!, 'default']
  if (plan !== undefined && plans.includes(plan)) return [plan, 'consumer']
  return [plans[0]!, stored ? 'default' : 'assumed']
}

/** Refused by the store, although the gateway lets such a request go on. */
export function refusalByStore(
  consumer: string,
  stored: Stored,
): { status: 401 | 403; reason: string } | undefined {
  if (stored.isUnknownKey) return { status: 401, reason: 'the store has no such key' }
  if (!isBlocked(stored, Date.now() * 1000)) return undefined
  return {
    status: 403,
    reason: `consumer '${consumer}' is blocked (npx sluicegate consumers show ${consumer})`,
  }
}

/** The override of a consumer that counts for a rule now. */
export function overrideOf(rule: GatewayRule, stored: Stored | undefined): Override | undefined {
  if (!rule.takesOverrides) return undefined
  const isNow = (until: number | undefined) => until === undefined || until > Date.now() * 1000
  return stored?.overrides.find(({ family, until }) => family === rule.family && isNow(until))
}
