/** Binds rules to the identities of one request, under the live switches. Pure. */
import type { Holding } from '../algorithms/algorithm.ts'
import type { CallerMode } from '../config/caller-mode.ts'
import type { Rule } from '../config/compile-rule.ts'
import type { BoundRule, Subject } from '../script/evaluation.ts'
import type { RuleSet } from '../script/rule-set-shape.ts'
import { sideKey } from '../store/keys.ts'
import type { Switches } from '../switches/switches.ts'
import { chooseMode, modeUnderSwitches } from './apply-switches.ts'

/** The input of the engine: the rules that apply to a request, and its caller. */
export interface Demand {
  rules: readonly DemandedRule[]
  /** The credential of the caller. Absent for an anonymous caller, and for limits by name. */
  subject?: Subject
  /** The plan of an anonymous caller, if a hook of the config names one. */
  plan?: string | undefined
  /**
   * Returns the demand in the mode that the store has found in the record of an opaque key, if the rules are bound for another one. That
   * demand has no such function, so a request is bound at most twice.
   *
   * @param consumer of the key, if only the store knew it
   */
  inMode?: (mode: CallerMode, consumer: string | undefined) => Demand
  /** An earlier error in limiting code: the engine makes no trip, and decides as if the store had failed. */
  failure?: unknown
  /** The compiled rules of the config or of the limit; `rules` are some of them. */
  ruleSet: RuleSet
}

/** A rule, the identity that it counts, and what the request costs. */
export interface DemandedRule {
  rule: Rule
  /** Key of the state of the identity. */
  key: string
  /** Units. A rule with cost 0 only reports its state. */
  cost: number
  /** Identifies the caller if the rule is enforced for a share of the callers. Default: `key`. */
  shareKey?: string
  /** The message of the holder of its units in flight. Absent: the isolate holds them. */
  holding?: Holding | undefined
  /** For a queue of a limit by name: the longest wait for its turn that the request accepts (µs). Absent: any. */
  wait?: number | undefined
}

/**
 * Binds a rule to an identity. Key and cost are those of `DemandedRule`.
 * @param nowMs by the clock of this machine. It only selects the calendar windows to send; the store picks one of them by its own clock
 * @param mode by default that of the config
 */
export function bindRule(
  rule: Rule,
  key: string,
  cost: number,
  nowMs: number,
  mode = chooseMode(rule, key),
): BoundRule {
  const { calendar, tag } = rule
  const { state } = rule.counting
  return {
    rule,
    key,
    cost,
    role: cost === 0 ? 'peek' : 'spend',
    mode,
    ...((state === 'log' || state === 'held') && { sideKey: sideKey(key, state, tag) }),
    ...(calendar && { ends: calendar.windowEnds(calendar.period, calendar.timeZone, nowMs) }),
  }
}

/** Returns the name under which a rule is switched. */
export type SwitchName = (rule: Rule) => string

/** Binds each rule that is not switched off. */
export function bindRules(
  rules: readonly DemandedRule[],
  switches: Switches,
  switchName: SwitchName,
  nowMs: number,
): BoundRule[] {
  const all: BoundRule[] = []
  for (const { rule, key, cost, shareKey, holding, wait } of rules) {
    const name = switchName(rule)
    const mode = modeUnderSwitches(rule, shareKey ?? key, switches, name)
    if (mode === 'off') continue
    const bound = bindRule(rule, key, cost, nowMs, mode)
    if (mode === 'shadow' && switches.rules.has(name)) bound.staysShadow = true
    if (shareKey !== undefined) bound.shareKey = shareKey
    if (holding) bound.holding = holding
    if (wait !== undefined) bound.wait = wait
    all.push(bound)
  }
  return all
}
