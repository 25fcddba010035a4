/**
 * Finds settings that are valid, but often not intended. `npx sluicegate check` shows them. They do not make a config invalid.
 */
import { ALL_ALGORITHMS } from '../../algorithms/all.ts'
import { credentialMethodsOf } from '../compile-credentials.ts'
import { compileGatewayRule } from '../compile-rule.ts'
import { unitsOf } from '../compile-units.ts'
import type { Mistake } from '../config-error.ts'
import { milliseconds } from '../duration.ts'
import { isField, needsCredential, readPart } from '../identity-parts.ts'
import { findUncovered } from './coverage.ts'
import { warningsOfUnits } from './mistakes-of-units.ts'
import { findUnusedLeases } from './never-leased.ts'
import { findRulesThatNeverRefuse } from './never-refuses.ts'
import type { CallLimitRuleInput, LimitRuleInput, RuleInput } from './rule-schema.ts'
import type { ConfigInput } from './schema.ts'

/** A path and a message, as in a mistake. */
export type Warning = Mistake

/** @param config a config without mistakes */
export function warningsOf(config: ConfigInput): Warning[] {
  const { rules = [], routes = [], plans = ['free'] } = config
  const { ofGatewayRule } = unitsOf(config.units)
  const written = rules.map(input => ({
    input,
    rule: ofGatewayRule(input, compileGatewayRule(input, plans, ALL_ALGORITHMS)[0]!),
  }))
  const accept = config.credentials?.accept ?? credentialMethodsOf(config)
  const reach = {
    accepted: new Set([...accept, ...routes.flatMap(route => route.accept ?? [])]),
    issuers: new Set(Object.keys(config.credentials?.jwt ?? {})),
    uncounted: new Set(routes.flatMap(({ name, limits }) => (limits === false ? [name] : []))),
  }
  return [
    ...findRulesThatNeverRefuse(written, reach),
    ...findUncovered(config),
    ...findUnusedLeases(config),
    ...warningsOfUnits(
      config,
      written.map(({ rule }) => rule),
    ),
    ...rules.flatMap((rule, i) => warningsOfIdentity(rule, `rules[${i}].by`, config)),
    ...rules.flatMap((rule, i) => warningsOfField(rule, `rules[${i}]`)),
    ...rules.flatMap((rule, i) => warningsOfTtl(rule, `rules[${i}].ttl`)),
    ...Object.entries(config.limits ?? {}).flatMap(([name, rules]) =>
      rules.flatMap((rule, i) => warningsOfTtl(rule, `limits.${name}[${i}].ttl`)),
    ),
    ...warningsOfModes(config),
    ...warningsOfAddress(config),
  ]
}

/** An event loop is often busy for a second or two: it parses a large body, or the machine is short of CPU (ms). */
const SHORT_TTL_MS = 5000

/** Warns about units in flight that end while their isolate is only busy. */
function warningsOfTtl(rule: RuleInput | LimitRuleInput | CallLimitRuleInput, path: string): Warning[] {
  const ttl = rule.algorithm === 'concurrency' ? rule.ttl : undefined
  if (ttl === undefined || milliseconds(ttl) >= SHORT_TTL_MS) return []
  const message = `'${ttl}' is short: an event loop can be busy for as long, and then renews no units. Meanwhile others are admitted in their place, so that more than the limit are in flight. Use '5s' or more, unless units of a process that has died must be free sooner.`
  return [{ path, message }]
}

/**
 * Warns about rules by a field of the body. Anyone can name the account of another: without the address, strangers lock it. Other requests have
 * no such field, and are counted together.
 */
function warningsOfField({ by, mode, match, enforce }: RuleInput, path: string): Warning[] {
  const field = [by].flat().find(part => part !== undefined && isField(part))
  if (field === undefined) return []
  const warnings: Warning[] = []
  const isEnforced = (mode ?? 'enforce') === 'enforce' && enforce !== 0
  if (isEnforced && ![by].flat().some(part => part === 'address' || (part && needsCredential(part))))
    warnings.push({
      path: `${path}.by`,
      message: `anyone can name the ${field.slice(6)} of another, so strangers can use up its limit. Write by: ['${field}', 'address'], or mode: 'shadow'.`,
    })
  if (match?.path === undefined && match?.routes === undefined)
    warnings.push({
      path,
      message: `counts all requests without the ${field.slice(6)} together, such as those with another body. Add a match, as in match: { methods: ['POST'], path: '/login' }.`,
    })
  return warnings
}

/** Parts that a client must prove or cannot choose. */
const VERIFIED: readonly string[] = ['consumer', 'credential', 'claim', 'address', 'global']

/** Warns about rules by a header or the host alone: a client that changes it becomes another caller. */
function warningsOfIdentity(rule: RuleInput, path: string, config: ConfigInput): Warning[] {
  const parts = [rule.by].flat().map(readPart)
  if (parts.some(({ part }) => VERIFIED.includes(part))) return []
  // Cloudflare overwrites its own headers, even if a client sends them.
  const isChosen = (name: string) => config.address?.from !== undefined || !name.startsWith('cf-')
  const header = parts.find(({ part, name }) => part === 'header' && isChosen(name))
  if (header) {
    const message = `clients choose the value of 'header:${header.name}': a new value is a new budget, and another caller's value spends that caller's budget. Add a verified part, as in ['consumer', 'header:${header.name}'].`
    return [{ path, message }]
  }
  if (!parts.some(({ part }) => part === 'host') || isHostBounded(rule, config)) return []
  const message =
    "clients choose the host, except on Cloudflare, where it is one that leads to the Worker: a new host is a new budget, and another host spends the budget of that host. Add a verified part, as in ['consumer', 'host'], or name the hosts, as in match: { host: '(api|www).example.com' }."
  return [{ path, message }]
}

/** Whether a rule counts requests of a bounded number of hosts. With `origin: 'route'`, Cloudflare passes on only those of its routes. */
function isHostBounded({ match }: RuleInput, { origin, routes = [] }: ConfigInput): boolean {
  const names = match?.routes
  const ofRoutes = routes.filter(({ name }) => names?.includes(name)).map(({ match }) => match.host)
  const isBounded = (host: string | undefined) => host !== undefined && !/[*+:]/.test(host)
  return origin === 'route' || isBounded(match?.host) || (names !== undefined && ofRoutes.every(isBounded))
}

/**
 * Warns about rules by address that count test callers and live ones together, in a config that treats them differently elsewhere: test
 * requests can then lock the live key of the same office.
 */
function warningsOfModes({ rules = [], credentials = {}, shedding }: ConfigInput): Warning[] {
  const namesMode = (rule: RuleInput) => [rule.by].flat().includes('mode') || rule.match?.mode !== undefined
  const hasModes =
    rules.some(rule => namesMode(rule) || rule.acrossModes) ||
    shedding?.classes.some(({ match }) => match?.mode !== undefined) ||
    Object.values(credentials.jwt ?? {}).some(({ input }) => input.claims?.mode !== undefined)
  if (!hasModes) return []
  return rules.flatMap((rule, i) => {
    const by = [rule.by].flat()
    const isMixed = by.includes('address') && !by.some(needsCredential) && !namesMode(rule)
    if (!isMixed || rule.on === 'auth-failure' || rule.match?.authenticated === false) return []
    const message = `counts test callers and live ones of an address together, so test requests can lock live ones. Write ${asList([...by, 'mode'])}, or match: { mode: 'live' }.`
    return [{ path: `rules[${i}].by`, message }]
  })
}

const asList = (parts: readonly string[]) => `[${parts.map(part => `'${part}'`).join(', ')}]`

/**
 * Warns about `peer` at a gateway on Workers, which does not see the other end of a connection. Also warns about headers of proxies:
 * where the platform does not report the other end of the connection, a trusted proxy is assumed.
 */
function warningsOfAddress({ address: { from } = {}, origin }: ConfigInput): Warning[] {
  if (from === 'peer' && origin !== undefined) {
    const message =
      "a gateway on Cloudflare Workers does not see the other end of a connection, so with 'peer' all its callers count as one address. Leave 'from' out on Cloudflare, or use 'x-forwarded-for' with trustedProxies."
    return [{ path: 'address.from', message }]
  }
  if (from !== 'x-forwarded-for' && from !== 'forwarded') return []
  const message = `where the platform does not report the address at the other end of a connection, as on Cloudflare Workers, a client that bypasses the proxies can write '${from}' itself. Make sure that requests can only come through trustedProxies.`
  return [{ path: 'address.from', message }]
}
