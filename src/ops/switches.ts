/**
 * Reads and sets live switches. Changes are made by compare-and-set, so that concurrent changes are not lost. Each switch has its author
 * and its end.
 */
import type { Config } from '../config/compile.ts'
import { SWITCHES_KEY } from '../store/keys.ts'
import {
  formatSwitches,
  hasExpired,
  parseSwitches,
  type RuleSwitch,
  type Switch,
  type Switches,
} from '../switches/switches.ts'
import { AdminError, type Suggest, unknownName } from './admin-error.ts'
import type { AdminStore } from './admin-store-shape.ts'
import { switchFacts } from './audit-facts.ts'
import { namedRules } from './named-rules.ts'
import { changeText } from './write.ts'

export async function readSwitches(store: AdminStore): Promise<Switches> {
  return parseSwitches(await store.run<string | null>('GET', store.at(SWITCHES_KEY)))
}

export interface SwitchChange {
  /** The switches after the change. */
  switches: Switches
  /** False: there was nothing to change, and nothing was written. */
  isChanged: boolean
}

/** Turns the kill switch on: no rule limits a request until it ends or is turned off. */
export async function killLimits(store: AdminStore, kill: Switch): Promise<Switches> {
  const { switches } = await changeSwitches(store, KILL, before => ({ ...before, kill }))
  return switches
}

/** Turns the kill switch off. */
export function restoreLimits(store: AdminStore): Promise<SwitchChange> {
  return changeSwitches(store, KILL, ({ kill, ...rest }) => (kill ? rest : undefined))
}

/** Switches a rule. Replaces its earlier switch; a share without a mode keeps the mode of that switch. */
export async function switchRule(store: AdminStore, name: string, change: RuleSwitch): Promise<Switches> {
  const { switches } = await changeSwitches(store, name, ({ rules, ...rest }) => {
    const before = rules.get(name)
    const { mode = before && !hasExpired(before, Date.now()) ? before.mode : undefined } = change
    return { ...rest, rules: new Map([...rules, [name, { ...change, ...(mode && { mode }) }]]) }
  })
  return switches
}

/** @throws AdminError `usage` for a change without an effect, or with two that contradict each other */
export function checkRuleChange({
  mode,
  share,
}: {
  mode?: string | undefined
  share?: number | undefined
}): void {
  if (mode === undefined && share === undefined)
    throw new AdminError('usage', 'No change is given. Use a mode or a share.')
  if (share !== undefined && (mode === 'off' || mode === 'shadow'))
    throw new AdminError(
      'usage',
      `A share cannot be combined with mode ${mode}: it is the share of callers for whom the rule is enforced.`,
    )
}

/** Removes the switch of a rule, even if the config no longer has the rule. */
export function resetRule(store: AdminStore, name: string): Promise<SwitchChange> {
  return changeSwitches(store, name, ({ rules, ...rest }) => {
    const others = new Map(rules)
    return others.delete(name) ? { ...rest, rules: others } : undefined
  })
}

/** The name of the kill switch in the audit trail. */
const KILL = 'kill'

/** @param name of the switch. @param change returns undefined if there is nothing to change */
async function changeSwitches(
  store: AdminStore,
  name: string,
  change: (switches: Switches) => Switches | undefined,
): Promise<SwitchChange> {
  let result: SwitchChange
  await changeText(store, SWITCHES_KEY, stored => {
    const before = parseSwitches(stored ?? null)
    const after = change(before)
    const switches = after ?? before
    result = { switches, isChanged: after !== undefined }
    const was = switchFacts(before, name)
    const is = switchFacts(switches, name)
    return {
      // An unchanged text is not written.
      text: after ? textOf(after) : stored,
      entry: { action: is ? 'switches.set' : 'switches.remove', target: name, before: was, after: is },
    }
  })
  return result!
}

/** @returns undefined without a switch: nothing is stored then */
const textOf = (switches: Switches): string | undefined =>
  switches.kill || switches.rules.size > 0 ? formatSwitches(switches) : undefined

/** The mode and the share of a rule in the config, which a switch can replace. */
export interface Switchable {
  mode: 'enforce' | 'shadow' | 'off'
  /** The share of callers for which the rule is enforced, 0 to 1. */
  share: number
}

type WithRules = Pick<Config, 'rules' | 'limits' | 'shedding'>

/** Everything that can be switched, by name: a rule of the gateway, a shedder, or `<limit>/<rule>`. */
export const listSwitchable = (config: WithRules): Map<string, Switchable> =>
  new Map(
    namedRules(config).map(({ switchName, rule: { mode, enforcedShare: share } }) => [
      switchName,
      { mode, share },
    ]),
  )

/** Whether a switch has an effect: it must not have ended, and the config must still have its rule. */
export type SwitchStatus = 'applies' | 'over' | 'rule-gone'

/** @param isInConfig whether the config has the rule of the switch; the kill switch needs none */
export function switchStatusOf(each: Switch, isInConfig = true): SwitchStatus {
  if (hasExpired(each, Date.now())) return 'over'
  return isInConfig ? 'applies' : 'rule-gone'
}

/** `shadow`, `enforce for 25 %` */
export function effectOf({ mode, share }: Pick<RuleSwitch, 'mode' | 'share'>): string {
  const percent =
    share === undefined || (share === 1 && mode) ? '' : `for ${Number((share * 100).toPrecision(12))} %`
  const isShared = mode === undefined || mode === 'enforce'
  return [mode ?? 'enforce', isShared ? percent : ''].filter(Boolean).join(' ')
}

/** @throws AdminError `not-found` that lists everything that can be switched */
export function findSwitchable(config: WithRules, name: string, suggest?: Suggest): Switchable {
  const all = listSwitchable(config)
  const found = all.get(name)
  if (found) return found
  const shedder = namedRules(config).find(rule => rule.name === name)?.switchName
  if (shedder) {
    throw new AdminError(
      'not-found',
      `Rule '${name}' is a part of '${shedder}', which is switched as a whole. Switch '${shedder}'.`,
    )
  }
  const problem = `The config has no rule '${name}'.`
  throw unknownName('not-found', problem, name, ['Rules', [...all.keys()]], suggest)
}
