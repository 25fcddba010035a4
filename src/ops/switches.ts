/**
 * Reads and sets live switches. Changes are made by compare-and-set, so that concurrent changes are not lost. Each switch has its author
 * and its end.
 */
import { didYouMean } from '../config/check/did-you-mean.ts'
import type { Config } from '../config/compile.ts'
import { switchNameOf } from '../config/compile-rule.ts'
import { WORKER_UTILIZATION } from '../config/compile-shedding.ts'
import { SWITCHES_KEY } from '../store/keys.ts'
import {
  formatSwitches,
  hasExpired,
  parseSwitches,
  type RuleSwitch,
  type Switch,
  type Switches,
} from '../switches/switches.ts'
import { AdminError } from './admin-error.ts'
import type { AdminStore } from './admin-store.ts'

export async function readSwitches(store: AdminStore): Promise<Switches> {
  return parseSwitches(await store.ask(redis => redis.get<string>(store.at(SWITCHES_KEY))))
}

/** Turns the kill switch on: all requests pass until it ends or is turned off. */
export function killLimits(store: AdminStore, kill: Switch): Promise<Switches> {
  return changeSwitches(store, switches => ({ ...switches, kill }))
}

/** Turns the kill switch off. @throws AdminError `not-found` if it is not on */
export function restoreLimits(store: AdminStore): Promise<Switches> {
  return changeSwitches(store, ({ kill, ...rest }) => {
    if (kill) return rest
    throw new AdminError('not-found', 'The kill switch is already off.')
  })
}

/** Switches a rule. Replaces its earlier switch; a share without a mode keeps the mode of that switch. */
export function switchRule(store: AdminStore, name: string, change: RuleSwitch): Promise<Switches> {
  return changeSwitches(store, ({ rules, ...rest }) => {
    const before = rules.get(name)
    const { mode = before && !hasExpired(before, Date.now()) ? before.mode : undefined } = change
    return { ...rest, rules: new Map([...rules, [name, { ...change, ...(mode && { mode }) }]]) }
  })
}

/** Removes the switch of a rule. @throws AdminError `not-found` if the rule has none */
export function resetRule(store: AdminStore, name: string): Promise<Switches> {
  return changeSwitches(store, ({ rules, ...rest }) => {
    const others = new Map(rules)
    if (others.delete(name)) return { ...rest, rules: others }
    const names = [...rules.keys()]
    throw new AdminError(
      'not-found',
      `Rule '${name}' is not switched.${didYouMean(name, names)} Switched rules: ${names.join(', ') || 'none'}.`,
    )
  })
}

async function changeSwitches(
  store: AdminStore,
  change: (switches: Switches) => Switches,
): Promise<Switches> {
  let changed = change(await readSwitches(store))
  await store.change(SWITCHES_KEY, text => {
    changed = change(parseSwitches(text ?? null))
    const isEmpty = !changed.kill && changed.rules.size === 0
    return isEmpty ? undefined : { text: formatSwitches(changed), expiry: 'never' }
  })
  return changed
}

/** The mode and the share of a rule in the config, which a switch can replace. */
export interface Switchable {
  mode: 'enforce' | 'shadow' | 'off'
  /** The share of callers for which the rule is enforced, 0 to 1. */
  share: number
}

/** Everything that can be switched, by name: a rule of the gateway, a shedder, or `<limit>/<rule>`. */
export function listSwitchable({
  rules,
  limits,
  shedding,
}: Pick<Config, 'rules' | 'limits' | 'shedding'>): Map<string, Switchable> {
  const named = [...limits].flatMap(([limit, set]) =>
    set.map(rule => [`${limit}/${rule.name}`, rule] as const),
  )
  const ofShedder = (shedding?.workerUtilization?.rules ?? []).map(
    rule => [WORKER_UTILIZATION, rule] as const,
  )
  const all = [...rules.map(rule => [switchNameOf(rule), rule] as const), ...ofShedder, ...named]
  return new Map(all.map(([name, { mode, enforcedShare: share }]) => [name, { mode, share }]))
}

/** @throws AdminError `not-found` that lists everything that can be switched */
export function findSwitchable(
  config: Pick<Config, 'rules' | 'limits' | 'shedding'>,
  name: string,
): Switchable {
  const all = listSwitchable(config)
  const found = all.get(name)
  if (found) return found
  const shedder = shedderOf(config, name)
  if (shedder) {
    throw new AdminError(
      'not-found',
      `Rule '${name}' is a part of '${shedder}', which is switched as a whole. Switch '${shedder}'.`,
    )
  }
  throw new AdminError(
    'not-found',
    `The config has no rule '${name}'.${didYouMean(name, [...all.keys()])} Rules: ${[...all.keys()].join(', ')}.`,
  )
}

/** The shedder to which a rule belongs, if any. */
function shedderOf(
  { rules, shedding }: Pick<Config, 'rules' | 'shedding'>,
  name: string,
): string | undefined {
  const isOfUtilization = shedding?.workerUtilization?.rules.some(rule => rule.name === name)
  return isOfUtilization ? WORKER_UTILIZATION : rules.find(rule => rule.name === name)?.switchedAs
}
