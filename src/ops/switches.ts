/**
 * Live switches, as those who administer see and set them. Each change is made by what was there, so that two people cannot
 * lose each other's, and says who has made it and until when it counts.
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

/** Everything passes, until it is switched back. */
export function killLimits(store: AdminStore, kill: Switch): Promise<Switches> {
  return changeSwitches(store, switches => ({ ...switches, kill }))
}

/** @throws AdminError when it is not on */
export function restoreLimits(store: AdminStore): Promise<Switches> {
  return changeSwitches(store, ({ kill, ...rest }) => {
    if (kill) return rest
    throw new AdminError('not-found', 'The kill switch is already off.')
  })
}

/** In the place of how the rule was switched before; a share alone leaves the mode that it was switched to. */
export function switchRule(store: AdminStore, name: string, change: RuleSwitch): Promise<Switches> {
  return changeSwitches(store, ({ rules, ...rest }) => {
    const before = rules.get(name)
    const { mode = before && !hasExpired(before, Date.now()) ? before.mode : undefined } = change
    return { ...rest, rules: new Map([...rules, [name, { ...change, ...(mode && { mode }) }]]) }
  })
}

/** @throws AdminError when the rule is not switched */
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

/** What can be switched: a rule as the config has it. */
export interface Switchable {
  mode: 'enforce' | 'shadow' | 'off'
  share: number
}

/** By the name to switch it by: that of a gateway's rule or of a shedder, or `<limit>/<rule>`. */
export function switchable({
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

/** @throws AdminError naming what there is */
export function mustBeSwitchable(
  config: Pick<Config, 'rules' | 'limits' | 'shedding'>,
  name: string,
): Switchable {
  const all = switchable(config)
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

/** The shedder that a rule is a part of; undefined: of none. */
function shedderOf(
  { rules, shedding }: Pick<Config, 'rules' | 'shedding'>,
  name: string,
): string | undefined {
  const isOfUtilization = shedding?.workerUtilization?.rules.some(rule => rule.name === name)
  return isOfUtilization ? WORKER_UTILIZATION : rules.find(rule => rule.name === name)?.switchedAs
}
