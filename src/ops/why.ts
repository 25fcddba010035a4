/**
 * Collects what decides about a caller now: its credential, block, plan and overrides, the live switches, what is left of its rules, and
 * what was refused lately. Nothing is counted.
 */
import { isInRanges, parseAddress } from '../config/address-ranges.ts'
import type { CallerMode } from '../config/caller-mode.ts'
import type { Config, GatewayRule, LimitRule } from '../config/compile.ts'
import { switchNameOf } from '../config/compile-rule.ts'
import { isConsumerName } from '../config/forms.ts'
import { isOfConsumer } from '../config/identity-parts.ts'
import { isOpaqueKey } from '../credentials/opaque-key.ts'
import { networkText } from '../metrics/top-callers.ts'
import { escaped } from '../store/escape.ts'
import { consumerKey } from '../store/keys.ts'
import { type ConsumerRecord, type CredentialRecord, isBlocked, parseConsumer } from '../store/records.ts'
import { dropExpired, type RuleSwitch, type Switches } from '../switches/switches.ts'
import { AdminError } from './admin-error.ts'
import type { AdminStore } from './admin-store-shape.ts'
import { type AuditEntry, readAudit } from './audit.ts'
import { type CallerIdentity, rulesBy, rulesByMore } from './caller-identity.ts'
import { namesNear, readKeyPage } from './key-pages.ts'
import { findKey } from './key-reference.ts'
import type { KeyInfo } from './keys.ts'
import { peekCaller, peekLimit, planOf, type RuleStanding } from './limits.ts'
import { parseConsumerName } from './names.ts'
import { MINUTE_MS } from './record-times.ts'
import { readSwitches } from './switches.ts'
import { modeOfRefused, type RefusedCaller, readTopCallers } from './top-callers.ts'

/** Whom the question is about. */
export type WhyTarget =
  | { kind: 'consumer'; consumer: string }
  | { kind: 'key'; text: string }
  | { kind: 'address'; address: string }
  /** The parts of an identity of limits by name. */
  | { kind: 'identity'; identity: Readonly<Record<string, string>> }

/** A rule, and what it would decide about a request now. */
export interface WhyRule extends RuleStanding {
  /** In a limit by name `<limit>/<rule>`. */
  name: string
  switch?: RuleSwitch | undefined
}

/** The refusals of a rule that are on record for the caller. */
export interface RecordedRefusals {
  rule: string
  mode: 'enforce' | 'shadow'
  refused: RefusedCaller
}

export interface WhyFacts {
  kind: WhyTarget['kind']
  /** As it is shown: the name, the id of the key, or the address. */
  caller: string
  now: Date
  /** Those that have not ended. */
  switches: Switches
  /** The switches of rules that can concern the caller, by the name of the rule. */
  switched: ReadonlyMap<string, RuleSwitch>
  consumer?: {
    name: string
    record: ConsumerRecord
    keys: readonly KeyInfo[]
    /** Absent: these are all. */
    hasMoreKeys?: true
    /** The names in the store, if this one is not among them. */
    others?: readonly string[]
  }
  /** Of a key: null if the store does not know it. */
  key?: CredentialRecord | null
  plan?: string
  /** Set if the config itself refuses or admits the caller. */
  listed?: 'block.addresses' | 'allow.addresses' | 'allow.consumers'
  rules: readonly WhyRule[]
  /** Names of rules that an override turns off. */
  off: readonly string[]
  /** Rules that could not be asked, because they count by more, with the missing parts. */
  notAsked: ReadonlyMap<string, readonly string[]>
  /** Set if the rules could not be asked. */
  peekError?: AdminError
  refusals: readonly RecordedRefusals[]
  /** Of a consumer, or of its key: its refusals in the other mode, which other units decide. */
  otherMode?: { mode: CallerMode; refusals: readonly RecordedRefusals[] }
  /** The start of the records of refusals. Absent: the config keeps none for such callers. */
  refusalsSince?: Date
  /** The last change of the consumer. null: none is on record. Absent: not read. */
  lastChange?: AuditEntry | null
  /** The changes of the consumer around its first refusal; without a refusal, its latest changes. The newest is first. */
  changes?: readonly AuditEntry[]
}

/** How far back refusals are read (ms). */
const LOOK_BACK_MS = 24 * 3600e3

/** At most this many keys of a consumer are looked at. */
const MAX_KEYS = 100

/** The rules by credential are asked for at most this many of them. */
const MAX_KEYS_ASKED = 10

/**
 * Finds out whether a text is an address, a key, an identity such as `account=42`, or else a consumer.
 * @throws AdminError `usage`
 */
export async function parseWhyTarget(
  text: string,
  { keyPrefix }: Pick<AdminStore, 'keyPrefix'>,
): Promise<WhyTarget> {
  if (parseAddress(text)) return { kind: 'address', address: text }
  if (text.startsWith(`${keyPrefix}_`) || KEY_ID.test(text)) return { kind: 'key', text }
  if (/^[^=,]+=/.test(text)) {
    const parts = text.split(',').map(part => part.split('=', 2) as [string, string | undefined])
    return {
      kind: 'identity',
      identity: Object.fromEntries(parts.map(([part, value = '']) => [part, value])),
    }
  }
  if (!isConsumerName(text) && !text.includes('~') && isOpaqueKey(text)) return { kind: 'key', text }
  return { kind: 'consumer', consumer: await parseConsumerName(text) }
}

/** @throws AdminError `store` if the store does not answer at all */
export async function readWhy(
  store: AdminStore,
  config: Config,
  target: WhyTarget,
  now = new Date(),
): Promise<WhyFacts> {
  const switches = dropExpired(await readSwitches(store), now.getTime())
  const common = { ...NOTHING, kind: target.kind, now, switches }
  const switched = withSwitches(config, switches)
  if (target.kind === 'identity') return await aboutIdentity(store, switched, target.identity, common)
  if (target.kind === 'address') return await aboutAddress(store, switched, target.address, common)
  if (target.kind === 'key') {
    const about = await aboutKey(store, switched, target.text, common)
    // Never the text itself, which may be a key.
    const caller = KEY_ID.test(target.text) ? target.text : 'this key'
    return about ?? { ...common, caller, key: null }
  }
  const { consumer } = target
  const about = await aboutConsumer(store, switched, consumer, { ...common, caller: consumer })
  const maybeKey = about.consumer?.others && config.credentials.opaqueKeys && isOpaqueKey(consumer)
  return (maybeKey && (await aboutKey(store, switched, consumer, { ...common, kind: 'key' }))) || about
}

const KEY_ID = /^[^/]+\/[0-9a-f]{4,64}$/

/** @returns undefined if the store does not know the key */
async function aboutKey(
  store: AdminStore,
  config: Config,
  text: string,
  common: Common,
): Promise<WhyFacts | undefined> {
  const key = await findKey(store, text).catch(error => {
    if (!(error instanceof AdminError) || error.kind !== 'not-found') throw error
  })
  if (!key) return undefined
  const { id, consumer, record } = key
  return await aboutConsumer(store, config, consumer, { ...common, caller: id, key: record }, id)
}

const NOTHING = {
  ...{ caller: '', rules: [], off: [], refusals: [] },
  ...{ notAsked: new Map<string, string[]>(), switched: new Map<string, RuleSwitch>() },
}

type Common = Pick<WhyFacts, 'kind' | 'caller' | 'now' | 'switches' | 'key'> & typeof NOTHING

async function aboutConsumer(
  store: AdminStore,
  config: Config,
  name: string,
  common: Common,
  keyId?: string,
): Promise<WhyFacts> {
  const text = await store.run<string | null>('GET', store.at(consumerKey(name)))
  const record = parseConsumer(text ?? '')
  const { items, next } = await readKeyPage(store, name, { limit: MAX_KEYS })
  const keys = items.sort((a, b) => a.createdAt.getTime() - b.createdAt.getTime())
  const isUnknown = text === null && keys.length === 0 && !next
  const names = isUnknown ? await namesNear(store, name) : [name]
  const mode = common.key?.mode ?? 'live'
  const plan = planOf(config, common.key ? [common.key] : keys.filter(key => key.mode === mode), record)
  const isBlockedNow = isBlocked(record, common.now.getTime() * 1e3)
  const credentials = keyId === undefined ? keys.slice(0, MAX_KEYS_ASKED).map(({ id }) => id) : [keyId]
  const hasRulesByKey = rulesBy(config, ['credential']).length > 0
  const identities: CallerIdentity[] = [
    { consumer: name, mode },
    ...globalIdentity(config),
    ...(hasRulesByKey ? credentials.map(credential => ({ consumer: name, credential })) : []),
  ]
  const asked = isBlockedNow
    ? {}
    : await ask(
        async identity => {
          const { standings, off } = await peekCaller(store, config, identity, plan)
          return { rules: standings, off: off.map(({ name }) => name) }
        },
        identities,
        common.switches,
      )
  return {
    ...common,
    consumer: {
      name,
      record,
      keys,
      ...(next && { hasMoreKeys: true }),
      ...(!names.includes(name) && { others: names }),
    },
    plan,
    switched: switchesOf(config, common.switches, by => isOfConsumer(by)),
    ...(config.allow.consumers.has(name) && { listed: 'allow.consumers' as const }),
    ...asked,
    notAsked: new Map(
      [...rulesByMore(config, ['consumer'])].filter(
        ([, missing]) => !(hasRulesByKey && missing.every(part => part === 'credential')),
      ),
    ),
    ...splitByMode(await refusalsOf(store, config, [name], common.now), mode, config),
  }
}

async function aboutAddress(
  store: AdminStore,
  config: Config,
  address: string,
  common: Common,
): Promise<WhyFacts> {
  const asked = await ask(
    async identity => ({ rules: (await peekCaller(store, config, identity)).standings, off: [] }),
    [{ address }, ...globalIdentity(config)],
    common.switches,
  )
  const { block, allow, stats } = config
  const listed = isInRanges(block.addresses, address)
    ? 'block.addresses'
    : isInRanges(allow.addresses, address)
      ? 'allow.addresses'
      : undefined
  const names = stats?.topCallers === 'networks' ? [networkText(address)!] : []
  return {
    ...common,
    caller: address,
    switched: switchesOf(config, common.switches, by => by.includes('address')),
    ...(listed && { listed }),
    ...asked,
    notAsked: rulesByMore(config, ['address']),
    ...(await refusalsOf(store, config, names, common.now)),
  }
}

async function aboutIdentity(
  store: AdminStore,
  config: Config,
  identity: Readonly<Record<string, string>>,
  common: Common,
): Promise<WhyFacts> {
  const parts = Object.keys(identity).sort().join(',')
  const counted = [...config.limits].filter(
    ([, rules]) => [...new Set(rules.flatMap(({ by }) => by))].sort().join(',') === parts,
  )
  if (counted.length === 0) {
    const known = [...config.limits].map(([name, rules]) => {
      const by = [...new Set(rules.flatMap(({ by }) => by))].map(part => `${part}=…`)
      return `${by.join(',') || 'all calls together'} (${name})`
    })
    throw new AdminError(
      'usage',
      `No limit by name counts by ${parts.slice(0, 60)}. ${known.length > 0 ? `Limits by name count by: ${known.join('; ')}.` : 'The config has no limits by name.'}`,
    )
  }
  const asked = await ask(
    async ([limit]) => ({
      rules: (await peekLimit(store, config, limit, identity)).map(standing => ({
        ...standing,
        limitName: limit,
      })),
      off: [],
    }),
    counted,
    common.switches,
  )
  const name = Object.entries(identity).map(([part, value]) => `${part}=${escaped(value)}`)
  return {
    ...common,
    caller: Object.entries(identity)
      .map(([part, value]) => `${part}=${value}`)
      .join(','),
    switched: new Map(
      [...common.switches.rules].filter(([name]) =>
        counted.some(([limit, rules]) => rules.some(rule => `${limit}/${rule.name}` === name)),
      ),
    ),
    ...asked,
    ...(await refusalsOf(store, config, [name.join(',')], common.now)),
  }
}

/** So many changes are looked at. */
const MAX_CHANGES_READ = 50

/** Of these, so many from before the first refusal, and from after it, are shown. */
const CHANGES_BEFORE = 3
const CHANGES_AFTER = 2

/** Adds the last changes of the consumer. Without the permission to read the audit trail, none is known. */
export async function withLastChange(store: AdminStore, facts: WhyFacts): Promise<WhyFacts> {
  const target = facts.consumer?.name
  if (target === undefined) return facts
  const page = await readAudit(store, { target, limit: MAX_CHANGES_READ }).catch(error => {
    if (!(error instanceof AdminError)) throw error
  })
  const entries = page?.entries ?? []
  return { ...facts, lastChange: entries[0] ?? null, changes: changesAround(entries, firstRefusalIn(facts)) }
}

/** Since when the rules that have refused the caller last have done so. */
export function firstRefusalIn({ refusals }: Pick<WhyFacts, 'refusals'>): Date | undefined {
  const enforced = refusals.filter(({ mode }) => mode === 'enforce').map(({ refused }) => refused)
  if (enforced.length === 0) return undefined
  const last = Math.max(...enforced.map(({ last }) => last.getTime()))
  const recent = enforced.filter(refused => last - refused.last.getTime() <= RUN_MS)
  return new Date(Math.min(...recent.map(({ since }) => since.getTime())))
}

/** Refusals with a longer pause between them are of different causes (ms). */
const RUN_MS = 5 * 60e3

/** @param entries the newest first */
function changesAround(entries: readonly AuditEntry[], first: Date | undefined): readonly AuditEntry[] {
  if (!first) return entries.slice(0, CHANGES_BEFORE)
  // The time of a refusal is its minute, so a change in that minute can be its cause.
  const end = first.getTime() + MINUTE_MS
  const before = entries.filter(({ at }) => at.getTime() < end).slice(0, CHANGES_BEFORE)
  const after = entries.filter(({ at }) => at.getTime() >= end).slice(-CHANGES_AFTER)
  return [...after, ...before]
}

/** The switches of rules that count by this, or all callers together. */
function switchesOf(
  { rules }: Config,
  { rules: switches }: Switches,
  isOwn: (by: GatewayRule['by']) => boolean,
): ReadonlyMap<string, RuleSwitch> {
  const concerned = rules.filter(({ by }) => by.includes('global') || isOwn(by)).map(switchNameOf)
  return new Map([...switches].filter(([name]) => concerned.includes(name)))
}

/** For the rules that count all callers together. */
const globalIdentity = (config: Config): CallerIdentity[] =>
  rulesBy(config, ['global']).length > 0 ? [{ global: '' }] : []

/** Asks the rules of each identity. If the store does not answer, the error is part of the result. */
async function ask<T>(
  peek: (
    identity: T,
  ) => Promise<{ rules: readonly (RuleStanding & { limitName?: string })[]; off: readonly string[] }>,
  identities: readonly T[],
  { rules: switches }: Switches,
): Promise<Pick<WhyFacts, 'rules' | 'off'> & Pick<WhyFacts, 'peekError'>> {
  const rules: WhyRule[] = []
  const off: string[] = []
  try {
    for (const identity of identities) {
      const found = await peek(identity)
      off.push(...found.off)
      for (const { limitName, ...standing } of found.rules) {
        const { rule } = standing
        // Limits of the origin depend on the traffic class of a request.
        if (rule.isSystemLimit) continue
        const name = limitName === undefined ? rule.name : `${limitName}/${rule.name}`
        const own = switches.get(limitName === undefined ? switchNameOf(rule) : name)
        // A switch to shadow takes precedence over an override.
        const mode = own?.mode === 'shadow' ? 'shadow' : standing.mode
        rules.push({ ...standing, name, mode, ...(own && { switch: own }) })
      }
    }
    return { rules, off }
  } catch (error) {
    if (!(error instanceof AdminError) || error.kind !== 'store') throw error
    return { rules, off, peekError: error }
  }
}

async function refusalsOf(
  store: AdminStore,
  { stats }: Config,
  names: readonly string[],
  now: Date,
): Promise<Pick<WhyFacts, 'refusals' | 'refusalsSince'>> {
  if (!stats?.topCallers || names.length === 0) return { refusals: [] }
  const { since, rules } = await readTopCallers(store, new Date(now.getTime() - LOOK_BACK_MS), now)
  const refusals = rules.flatMap(({ rule, mode, callers }) =>
    callers.flatMap(refused => (names.includes(refused.name) ? [{ rule, mode, refused }] : [])),
  )
  return { refusals, refusalsSince: since }
}

/** @param mode of the requests that the rules were asked for. Rules with `acrossModes` count the others together with them */
function splitByMode(
  { refusals, ...rest }: Awaited<ReturnType<typeof refusalsOf>>,
  mode: CallerMode,
  { rules }: Config,
): Pick<WhyFacts, 'refusals' | 'refusalsSince' | 'otherMode'> {
  const acrossModes = new Set(rules.filter(rule => rule.acrossModes).map(({ name }) => name))
  const own = refusals.filter(({ rule, refused }) => modeOfRefused(refused) === mode || acrossModes.has(rule))
  const others = refusals.filter(each => !own.includes(each))
  const otherMode = { mode: mode === 'live' ? 'test' : 'live', refusals: others } as const
  return { ...rest, refusals: own, ...(others.length > 0 && { otherMode }) }
}

/** The config with the modes and shares that the switches have set, so that rules which are switched on are asked too. */
function withSwitches(config: Config, { rules: switches }: Switches): Config {
  const switched = <R extends GatewayRule | LimitRule>(rule: R, name: string): R => {
    const { mode = rule.mode, share = rule.enforcedShare } = switches.get(name) ?? {}
    return { ...rule, mode, enforcedShare: share }
  }
  return {
    ...config,
    rules: config.rules.map(rule => switched(rule, switchNameOf(rule))),
    limits: new Map(
      [...config.limits].map(([limit, rules]) => [
        limit,
        rules.map(rule => switched(rule, `${limit}/${rule.name}`)),
      ]),
    ),
  }
}
