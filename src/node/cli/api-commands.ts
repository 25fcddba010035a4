/** The commands that the HTTP API has (`--api`): what each of them calls, and how it prints the document. */
import type { Command } from 'commander'
import { readServiceToken } from '../../credentials/service-token.ts'
import { AdminError } from '../../ops/admin-error.ts'
import { blockText } from '../../ops/blocks.ts'
import type { ConsumerInfo } from '../../ops/consumers.ts'
import type { AuditEntryDocument } from '../../ops/documents/audit.ts'
import type { BlockDocument, ConsumerDocument, PlanChangeDocument } from '../../ops/documents/consumers.ts'
import {
  type CreatedKeyDocument,
  type KeyDocument,
  keyExpiryDocument,
  keyLabelDocument,
  keyPlanDocument,
  type RotatedKeyDocument,
} from '../../ops/documents/keys.ts'
import { limitPauseDocument, limitResetDocument } from '../../ops/documents/limits.ts'
import { statsDocument } from '../../ops/documents/stats.ts'
import type { CreatedTokenDocument, RotatedTokenDocument, TokenDocument } from '../../ops/documents/tokens.ts'
import type { WhyDocument } from '../../ops/documents/why.ts'
import { parseOverlap } from '../../ops/inputs.ts'
import type { CreatedKey, KeyInfo } from '../../ops/keys.ts'
import { parseConsumerName, parseTime } from '../../ops/names.ts'
import type { Stats } from '../../ops/stats.ts'
import { checkBounds } from '../../ops/stats-bounds.ts'
import type { CreatedToken, TokenInfo } from '../../ops/tokens.ts'
import type { RuleCallers } from '../../ops/top-callers.ts'
import { sha256 } from '../../sha256.ts'
import { acquire, type CallFlags, type Lost, type RefundFlags, refund, take } from './acquire.ts'
import { mustConfirm, secretOf } from './administration.ts'
import { type ApiClient, createApiClient } from './api-client.ts'
import { endOf, type Flags, notInApi, type Run, reasonOf } from './api-flags.ts'
import { readable } from './api-reply.ts'
import { SWITCH_COMMANDS } from './api-switches.ts'
import { textOf as auditLine } from './audit-output.ts'
import { consumerTable, count, noteOfKeys } from './consumers.ts'
import { documentText, withDates } from './document-text.ts'
import { expiryText, oneOf } from './key-changes.ts'
import { keyTable, printCreatedKey } from './key-output.ts'
import { mustHaveOneKey } from './keys.ts'
import { callsByApi } from './limit-calls-by-api.ts'
import { printOverrides } from './limit-overrides.ts'
import { identityText, parseTarget } from './limit-target.ts'
import { pauseText } from './limits.ts'
import { print } from './output.ts'
import { mustRemoveAlone, type OverrideFlags, unitsIn } from './overrides.ts'
import { checkFlags, reportChecks } from './stats.ts'
import { printCreatedToken, tokenTable } from './tokens.ts'
import { topCallersText } from './top-output.ts'

/** Those of each consumer are in the order of their creation. */
async function listKeys(api: ApiClient, consumer: string | undefined): Promise<KeyDocument[]> {
  const keys = await api.list<KeyDocument>('listKeys', { query: { consumer } })
  return [...Map.groupBy(keys, each => each.consumer).values()].flatMap(some =>
    some.sort((a, b) => Date.parse(a.createdAt) - Date.parse(b.createdAt)),
  )
}

/** With all of its keys. */
async function whole(
  api: ApiClient,
  { hasMoreKeys, ...document }: ConsumerDocument,
): Promise<ConsumerDocument> {
  return hasMoreKeys ? { ...document, keys: await listKeys(api, document.consumer) } : document
}

/** By the words of the command. */
const COMMANDS: Readonly<Record<string, Run>> = {
  'keys create': async (api, flags) => {
    const created = await api.call<CreatedKeyDocument>('createKey', {
      body: newKeyOf(flags),
      ...reasonOf(flags),
    })
    if (flags.json) print(flags, created, String)
    else printCreatedKey(withDates<CreatedKey>(created))
  },

  'keys import': async (api, flags, argument) => {
    mustHaveOneKey(argument, flags)
    const opaque = flags.sha256 === undefined ? { key: await secretOf(argument!) } : { sha256: flags.sha256 }
    const body = { ...newKeyOf(flags), ...opaque }
    const imported = await api.call<KeyDocument>('importKey', { body, ...reasonOf(flags) })
    print(flags, imported, () => `Key '${imported.id}' belongs to consumer '${imported.consumer}' now.`)
  },

  'keys list': async (api, flags) => {
    const { consumer } = flags
    const keys = await listKeys(api, consumer)
    print(flags, keys, () => (keys.length > 0 ? keyTable(withDates<KeyInfo[]>(keys)) : 'There are no keys.'))
  },

  'keys label': async (api, flags, key, text) => {
    const { id, label } = await changeKey(api, flags, key!, { label: oneOf(text, flags, 'a label') ?? null })
    print(flags, keyLabelDocument(id, label), () =>
      label ? `The label of key '${id}' is '${label}'.` : `Key '${id}' has no label.`,
    )
  },

  'keys plan': async (api, flags, key, text) => {
    const { id, plan } = await changeKey(api, flags, key!, { plan: oneOf(text, flags, 'a plan') ?? null })
    const on = plan ? `plan '${plan}'` : "the consumer's plan"
    print(flags, keyPlanDocument(id, plan), () => `Key '${id}' is on ${on}.`)
  },

  'keys expire': async (api, flags, key, when) => {
    const at = parseTime(when!)
    if (at !== undefined && at <= new Date())
      throw new AdminError('usage', 'The API sets no end in the past. Use npx sluicegate keys revoke.')
    const { id, expiresAt } = await changeKey(api, flags, key!, { expiresAt: at?.toISOString() ?? null })
    const end = expiresAt === undefined ? undefined : new Date(expiresAt)
    print(flags, keyExpiryDocument(id, end), () => `Key '${id}' ${end ? expiryText(end) : 'never expires'}.`)
  },

  'keys revoke': async (api, flags, key) => {
    const params = paramsOfKey(key!)
    await mustConfirm(`Revoke key '${key}'?`, flags)
    const revoked = await api.call<{ id: string }>('revokeKey', { params, ...reasonOf(flags) })
    print(flags, revoked, () => `Key '${revoked.id}' is revoked.`)
  },

  'keys rotate': async (api, flags, key) => {
    const params = paramsOfKey(key!)
    const body = await overlapOf(flags, `key '${key}'`)
    const rotated = await api.call<RotatedKeyDocument>('rotateKey', { params, body, ...reasonOf(flags) })
    if (flags.json) print(flags, rotated, String)
    else printCreatedKey(withDates<CreatedKey>(rotated))
    reportReplaced(rotated.replaces, 'key', flags)
  },

  'consumers list': async (api, flags) => {
    const consumers: ConsumerDocument[] = []
    for (const each of await api.list<ConsumerDocument>('listConsumers'))
      consumers.push(await whole(api, each))
    const infos = consumers.map(each => ({ ...withDates<ConsumerInfo>(each), ...blockOf(each) }))
    print(flags, consumers, () => (infos.length > 0 ? consumerTable(infos) : 'There are no consumers.'))
  },

  'consumers show': async (api, flags, name) => {
    const shown = await api.call<ConsumerDocument>('showConsumer', await paramsOfConsumer(name!))
    const document = await whole(api, shown)
    print(flags, document, () => documentText(document))
  },

  'consumers set': async (api, flags, name) => {
    const { plan } = flags
    if (plan === undefined) throw new AdminError('usage', 'No plan is given. Use --plan <name> or --no-plan.')
    const call = { ...(await paramsOfConsumer(name!)), body: { plan: plan || null }, ...reasonOf(flags) }
    const document = await api.call<PlanChangeDocument>('changeConsumer', call)
    const what = document.plan ? `is on plan '${document.plan}'` : 'has no plan of its own'
    print(
      flags,
      document,
      () => `Consumer '${document.consumer}' ${what}.${noteOfKeys(document.consumer, document)}`,
    )
  },

  'consumers block': async (api, flags, name) => {
    const params = await paramsOfConsumer(name!)
    await mustConfirm(`Block consumer '${name}'?`, flags)
    const call = { ...params, body: endOf(flags), ...reasonOf(flags) }
    const document = await api.call<BlockDocument & { consumer: string }>('blockConsumer', call)
    const text = blockText(blockOf(document), ' UTC')
    print(flags, document, () => `Consumer '${document.consumer}' is blocked, ${text}.`)
  },

  'consumers unblock': async (api, flags, name) => {
    const call = { ...(await paramsOfConsumer(name!)), ...reasonOf(flags) }
    const document = await api.call<{ consumer: string }>('unblockConsumer', call)
    print(flags, document, () => `Consumer '${document.consumer}' is not blocked.`)
  },

  'consumers override': async (api, flags, name, rule) => {
    const { consumer } = (await paramsOfConsumer(name!)).params
    const params = { consumer, rule: rule! }
    if (flags.remove) {
      mustRemoveAlone(overrideFlags(flags))
      const left = await api.call<object>('removeOverride', { params, ...reasonOf(flags) })
      return print(flags, left, () => `Consumer '${consumer}' has no override of rule '${rule}' now.`)
    }
    const { mode, removeStale } = flags
    const body = { ...unitsIn(overrideFlags(flags)), mode, removeStale, ...endOf(flags) }
    const document = await api.call<object>('setOverride', { params, body, ...reasonOf(flags) })
    print(flags, document, () => documentText(document))
  },

  'consumers remove': async (api, flags, name) => {
    const params = await paramsOfConsumer(name!)
    await mustConfirm(`Remove consumer '${name}', with its keys?`, flags)
    const call = { ...params, ...reasonOf(flags) }
    const document = await api.call<{ consumer: string; keys: number }>('removeConsumer', call)
    print(flags, document, () => `Consumer '${document.consumer}' is removed, with ${count(document.keys)}.`)
  },

  ...SWITCH_COMMANDS,

  stats: async (api, flags) => {
    const { rule, top, shadow, by, prometheus, failAbove } = flags
    checkFlags(flags as Parameters<typeof checkFlags>[0])
    if (by || prometheus) throw notInApi(`stats ${by ? '--by' : '--prometheus'}`)
    const since = `${Number(flags.since) / 1e3}s`
    if (top) {
      const query = { since, rule, shadow: shadow ? 'true' : undefined }
      const document = await api.call<{ since: string; rules: unknown }>('topCallers', { query })
      const { since: start, rules } = withDates<{ since: Date; rules: RuleCallers[] }>(document)
      const shown = { ...(rule !== undefined && { rule }), ...(shadow && { shadow }) }
      return print(flags, document, () => topCallersText(rules, { since: start, now: new Date() }, shown))
    }
    const counted = withDates<Stats>(await api.call('stats', { query: { since, rule } }))
    const checks = failAbove && checkBounds(counted, failAbove, rule)
    const document = statsDocument(counted, {}, checks)
    print(flags, document, () => documentText(statsDocument(counted)))
    reportChecks(checks, flags)
  },

  why: async (api, flags, caller) => {
    if (caller === '-' || /^sl[kt]_/.test(caller!)) throw secretInPath()
    const document = await api.call<WhyDocument>('why', { params: { caller: caller! } })
    const { sentence, ...others } = document
    print(flags, document, () => `${sentence}\n\n${documentText(others)}`)
  },

  audit: async (api, flags) => {
    const { target, since, follow } = flags
    if (follow) throw notInApi('audit --follow')
    const start = since === undefined ? 0 : Number(since)
    const isRecent = ({ at }: AuditEntryDocument) => Date.parse(at) >= start
    const items = await api.list('audit', { query: { target } }, isRecent)
    const lines = () => items.map(({ at, ...entry }) => auditLine({ ...entry, at: new Date(at) }))
    print(flags, { items }, () => lines().join('\n') || 'There are no changes on record.')
  },

  'limits peek': async (api, flags, limit) => {
    const { name, identity } = limitOf('peek', flags, limit)
    const document = await api.call<object>('peek', {
      params: { name },
      body: { identity, numbers: flags.numbers },
    })
    print(flags, document, () => documentText(document))
  },

  'limits reset': async (api, flags, limit) => {
    const { name, identity } = limitOf('reset', flags, limit)
    const { rule, numbers } = flags
    const whole = `limit '${name}'${identityText(identity)}`
    const what = rule ? `rule '${rule}' of ${whole}` : whole
    await mustConfirm(`Reset ${what}?`, flags)
    await api.call('reset', { params: { name }, body: { identity, rule, numbers }, ...reasonOf(flags) })
    print(flags, limitResetDocument(name, identity, rule), () => `Reset ${what}.`)
  },

  'limits pause': async (api, flags, limit) => {
    await printPause(api, flags, 'pause', limit!, { forMs: flags.for as unknown as number })
  },

  'limits resume': async (api, flags, limit) => {
    await printPause(api, flags, 'resume', limit!)
  },

  'limits override': async (api, { mode, ...flags }, limit, rule) => {
    const { name, identity } = limitOf('override', flags, limit)
    const { remove, removeStale } = flags
    const params = { name, rule: rule! }
    if (remove) mustRemoveAlone(overrideFlags({ ...flags, ...(mode && { mode }) }))
    const numbers = { ...unitsIn(overrideFlags(flags)), mode, removeStale, ...endOf(flags) }
    const body = { identity, ...(remove ? {} : numbers) }
    const id = remove ? 'removeLimitOverride' : 'setLimitOverride'
    printOverrides(flags, await api.call<object>(id, { params, body, ...reasonOf(flags) }))
  },

  'limits overrides': async (api, flags, limit) => {
    const params = { name: limit! }
    printOverrides(flags, await api.call<object>('listLimitOverrides', { params }))
  },

  'limits acquire': async (api, flags, limit, ...command) => {
    const lost: Lost = { report() {} }
    const calls = callsByApi(api, cause => lost.report(cause))
    await acquire(calls, lost, limit!, command.flat(), flags as CallFlags)
  },

  'limits take': async (api, flags, limit) => await take(callsByApi(api), limit!, flags as CallFlags),

  'limits refund': async (api, flags, limit) => await refund(callsByApi(api), limit!, flags as RefundFlags),

  'tokens create': async (api, flags) => {
    const { name, expires: expiresAt } = flags
    const scopes = flags.scopes!.split(',').map(scope => scope.trim())
    const call = { body: { name, scopes, expiresAt }, ...reasonOf(flags) }
    printNewToken(flags, await api.call('createToken', call))
  },

  'tokens list': async (api, flags) => {
    const listed = await api.list<TokenDocument>('listTokens')
    const tokens = listed.sort((a, b) => (a.createdAt + a.id < b.createdAt + b.id ? -1 : 1))
    const none = 'There are no service tokens.'
    print(flags, tokens, () => (tokens.length > 0 ? tokenTable(withDates<TokenInfo[]>(tokens)) : none))
  },

  'tokens show': async (api, flags, token) => {
    const document = await api.call<TokenDocument>('showToken', { params: await paramsOfToken(token!) })
    print(flags, document, () => tokenTable([withDates<TokenInfo>(document)]))
  },

  'tokens revoke': async (api, flags, token) => {
    const params = await paramsOfToken(token!)
    await mustConfirm(`Revoke token '${params.id}'?`, flags)
    const { id } = await api.call<{ id: string }>('revokeToken', { params, ...reasonOf(flags) })
    print(flags, { id, revoked: true }, () => `Token '${id}' is revoked.`)
  },

  'tokens rotate': async (api, flags, token) => {
    const params = await paramsOfToken(token!)
    const body = await overlapOf(flags, `token '${params.id}'`)
    const call = { params, body, ...reasonOf(flags) }
    const rotated = await api.call<RotatedTokenDocument>('rotateToken', call)
    printNewToken(flags, rotated)
    reportReplaced(rotated.replaces, 'token', flags)
  },
}

/** The words of each. */
export const API_COMMANDS: readonly string[] = Object.keys(COMMANDS)

/** Runs a command by the API. @param url of the gateway @throws AdminError */
export async function runByApi(command: Command, url: string): Promise<void> {
  const flags = command.opts<Flags>()
  const words = wordsOf(command)
  // The group `switch` has these as well.
  const run = COMMANDS[words] ?? COMMANDS[words.replace(/^switch (?=block|unblock|override)/, 'consumers ')]
  if (!run) throw notInApi(words)
  if (flags.env !== undefined)
    throw new AdminError('usage', '--env cannot be used with the API: its gateway has one. Leave it out.')
  if (typeof flags.by === 'string' && words !== 'stats') throw authorOfToken('--by')
  if (flags.as !== undefined) throw authorOfToken('--as')
  const token = flags.token ?? process.env.SLUICE_API_TOKEN
  const api = createApiClient({ url, token })
  // With --json, what is printed is escaped instead.
  await run(flags.json ? api : forPeople(api), flags, ...(command.processedArgs as string[]))
}

const forPeople = (api: ApiClient): ApiClient => ({
  call: async (...of) => readable(await api.call(...of)),
  list: async <T>(...of: Parameters<typeof api.list<T>>) => readable(await api.list<T>(...of)),
})

/** `consumers block` */
const wordsOf = (command: Command): string =>
  command.parent?.parent ? `${wordsOf(command.parent)} ${command.name()}` : command.name()

const authorOfToken = (option: string) =>
  new AdminError(
    'usage',
    `${option} cannot be used with the API: it records the name of the token. Leave it out.`,
  )

const secretInPath = () =>
  new AdminError(
    'usage',
    'The API takes no secrets in its paths. Use the ID of the key, as keys list shows it.',
  )

const overrideFlags = ({ by: _, plan: __, ...flags }: Flags): OverrideFlags => flags

const newKeyOf = ({ consumer, plan, label, mode, expires }: Flags) => ({
  ...{ consumer, plan, label, mode, expiresAt: expires },
})

async function changeKey(
  api: ApiClient,
  flags: Flags,
  key: string,
  body: Record<string, unknown>,
): Promise<KeyDocument> {
  return await api.call('changeKey', { params: paramsOfKey(key), body, ...reasonOf(flags) })
}

/** @throws AdminError for a key instead of its id */
function paramsOfKey(key: string): { consumer: string; digits: string } {
  const [, consumer, digits] = /^([^/]{1,255})\/([0-9a-f]{4,64})$/s.exec(key) ?? []
  if (consumer === undefined || digits === undefined) throw secretInPath()
  return { consumer, digits }
}

/** Of a token, the digest is enough. */
async function paramsOfToken(argument: string): Promise<{ id: string }> {
  const text = await secretOf(argument)
  return { id: readServiceToken(text) ? sha256(text) : text }
}

const paramsOfConsumer = async (name: string) => ({ params: { consumer: await parseConsumerName(name) } })

function limitOf(verb: string, flags: Flags, limit: string | undefined) {
  const { by, plan: _, mode, ...others } = flags
  const identity = typeof by === 'object' ? by : {}
  const target = parseTarget(limit, { ...others, by: identity, ...(mode && { mode }) })
  if (target.kind === 'caller') throw notInApi(`limits ${verb} without the name of a limit`)
  return { name: target.name, identity }
}

/** @param what is replaced, for the confirmation */
async function overlapOf(flags: Flags, what: string): Promise<{ overlap: string }> {
  const overlap = flags.overlap!
  if (parseOverlap(overlap, '--overlap') === 0) await mustConfirm(`Revoke ${what} now?`, flags)
  return { overlap }
}

function reportReplaced(
  { id, expiresAt }: { id: string; expiresAt: string | null },
  what: string,
  { json }: Flags,
): void {
  if (expiresAt === null) throw new AdminError('store', `The old ${what} '${id}' is still valid. Revoke it.`)
  const end = new Date(expiresAt)
  if (!json) console.error(`The old ${what} '${id}' ${end <= new Date() ? 'is revoked' : expiryText(end)}.`)
}

function printNewToken(flags: Flags, document: CreatedTokenDocument): void {
  if (flags.json) print(flags, document, String)
  else printCreatedToken(withDates<CreatedToken>(document))
}

async function printPause(
  api: ApiClient,
  flags: Flags,
  id: 'pause' | 'resume',
  limit: string,
  length: { forMs?: number } = {},
): Promise<void> {
  const { name, identity } = limitOf(id, flags, limit)
  const call = { params: { name }, body: { identity, ...length }, ...reasonOf(flags) }
  const { pausedUntil } = await api.call<{ pausedUntil?: string }>(id, call)
  const until = pausedUntil === undefined ? undefined : new Date(pausedUntil)
  print(flags, limitPauseDocument(name, identity, until), () => pauseText(name, identity, until))
}

/** A block as the record of the store has it, whose end is in µs. */
function blockOf(document: BlockDocument): Parameters<typeof blockText>[0] {
  const { blockedAt, blockedUntil, blockedBy, reason } = document
  return {
    ...(blockedAt !== null && { blockedAt: new Date(blockedAt) }),
    ...(blockedUntil !== undefined && { blockedUntil: Date.parse(blockedUntil) * 1e3 }),
    ...(blockedBy !== undefined && { blockedBy }),
    ...(reason !== undefined && { reason }),
  }
}
