/** What entries of the audit trail say about records: plain values, times as ISO 8601, and no secrets. */
import type { ConsumerRecord, CredentialRecord, Override, TokenRecord } from '../store/records.ts'
import type { Switch, Switches } from '../switches/switches.ts'
import type { Facts } from './change.ts'

/** Of a key or a token. The hint of a key is the end of its text, as `keys list` shows it. */
export const recordFacts = ({ createdAt: _, ...record }: CredentialRecord | TokenRecord): Facts => record

/** Each override is a value of its own, so that an entry has only those that have changed. */
export const consumerFacts = ({ overrides, blockedUntil, ...record }: ConsumerRecord): Facts => ({
  ...record,
  ...(blockedUntil && { blockedUntil: new Date(blockedUntil / 1000) }),
  ...Object.fromEntries(overrides.map(override => [`override ${override.rule}`, overrideFacts(override)])),
})

const overrideFacts = ({ numbers, mode, until }: Override): Facts => ({
  ...{ limit: numbers?.limit, burst: numbers?.burst, mode },
  ...(until && { until: new Date(until / 1000) }),
})

/** @param name of a rule, or `kill` */
export function switchFacts({ kill, rules }: Switches, name: string): Facts | undefined {
  const found: Switch | undefined = name === 'kill' ? kill : rules.get(name)
  if (!found) return undefined
  const { at: _, ...facts } = found
  return facts
}
