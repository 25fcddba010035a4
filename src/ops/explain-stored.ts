/** Reads the records of a caller for `explain`: its plan, its overrides, and whether it is blocked. */
import type { Config, GatewayRule } from '../config/compile.ts'
import type { Credential } from '../credentials/credential.ts'
import {
  type ConsumerRecord,
  isBlocked,
  type Override,
  parseConsumer,
  parseCredential,
} from '../store/records.ts'
import type { AdminStore } from './admin-store-shape.ts'
import type { StoreRefusal } from './decision-cost.ts'
import { ANY_KEY } from './explain-caller.ts'
import { namesNear } from './key-pages.ts'
import { listKeys, planOfAll } from './keys.ts'
import { parsePlan } from './names.ts'

export interface Stored extends ConsumerRecord {
  /** The plan of the given key. Absent: no key is given, or it has no plan of its own. */
  planOfKey?: string
  /** If no key is given: the plans of the consumer's keys. */
  plansOfKeys: readonly string[]
  /** If no key is given: the plan that all keys of the consumer have. */
  planOfKeys?: string
  /** The given key has no record. */
  isUnknownKey: boolean
  /** If no key is given, and the store has neither a key nor a setting of the consumer: the consumers that it knows. */
  unknownConsumer?: { others: readonly string[] }
}

/** Reads the records of a caller. @throws AdminError `store` */
export type LookUp = (credential: Credential) => Promise<Stored | undefined>

/** @returns a function whose result is undefined for an opaque key, because only a decision looks up its consumer */
export function createLookUp(store: AdminStore): LookUp {
  return async ({ subject, digest, mode = 'live', consumer: name }) => {
    if (subject.kind === 'pointer' || subject.kind === 'failed') return undefined
    const { consumerKey } = subject
    const ofKey = subject.kind === 'key' && digest !== ANY_KEY ? subject.credentialKey : undefined
    const [consumer, key] = await store.runEach<string | null>(
      [consumerKey, ...(ofKey ? [ofKey] : [])].map(name => ['GET', store.at(name)]),
    )
    const record = parseCredential(key ?? '')
    const keys = digest === ANY_KEY ? await listKeys(store, name) : []
    const ofMode = keys.filter(key => key.mode === mode)
    const planOfKeys = planOfAll(ofMode)
    // Only a hint, and not an error: consumers of tokens need no record.
    const isUnknown = digest === ANY_KEY && consumer === null && keys.length === 0
    const others = isUnknown ? await namesNear(store, name) : []
    return {
      ...parseConsumer(consumer ?? ''),
      ...(record?.plan && { planOfKey: record.plan }),
      ...(planOfKeys && { planOfKeys }),
      plansOfKeys: [...new Set(ofMode.flatMap(({ plan }) => plan ?? []))],
      isUnknownKey: ofKey !== undefined && record === undefined,
      ...(isUnknown && !others.includes(name) && { unknownConsumer: { others } }),
    }
  }
}

/** Where the plan of a caller comes from. `assumed`: the store was not read, and may have another plan. */
export type PlanSource = 'option' | 'token' | 'key' | 'keys' | 'consumer' | 'default' | 'assumed'

/**
 * The plan that the store would use: that of the credential, or else of the consumer, or else the default. If only the consumer is given,
 * a plan that all its keys have counts as the plan of the credential.
 */
export function resolvePlan(
  { plans }: Pick<Config, 'plans'>,
  {
    option,
    token,
    stored,
  }: { option?: string | undefined; token?: string | undefined; stored?: Stored | undefined },
): [plan: string, from: PlanSource] {
  if (option !== undefined) return [parsePlan(option, plans), 'option']
  // If the config does not have the plan of a token, the token counts as one without a plan. If it does not have the plan of a key, the
  // key counts as one with the default plan.
  if (token !== undefined && plans.includes(token)) return [token, 'token']
  const { planOfKey, planOfKeys, plan } = stored ?? {}
  const ofKey = planOfKey ?? planOfKeys
  if (ofKey !== undefined)
    return plans.includes(ofKey) ? [ofKey, planOfKey === undefined ? 'keys' : 'key'] : [plans[0]!, 'default']
  if (plan !== undefined && plans.includes(plan)) return [plan, 'consumer']
  return [plans[0]!, stored ? 'default' : 'assumed']
}

/** The refusal of a request that the gateway passes on to the store and that the store refuses. */
export function refusalByStore(
  consumer: string,
  stored: Stored,
): { status: 401 | 403; cause: StoreRefusal; reason: string } | undefined {
  if (stored.isUnknownKey) return { status: 401, cause: 'unknown-key', reason: 'the store has no such key' }
  if (!isBlocked(stored, Date.now() * 1000)) return undefined
  return {
    status: 403,
    cause: 'blocked',
    reason: `consumer '${consumer}' is blocked (npx sluicegate consumers show ${consumer})`,
  }
}

/** The consumer's override that applies to a rule now. */
export function findOverride(rule: GatewayRule, stored: Stored | undefined): Override | undefined {
  if (!rule.takesOverrides) return undefined
  const isNow = (until: number | undefined) => until === undefined || until > Date.now() * 1000
  return stored?.overrides.find(({ family, until }) => family === rule.family && isNow(until))
}
