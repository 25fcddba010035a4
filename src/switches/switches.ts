/**
 * Live switches: rules that an operator has turned down or up without a deployment. All of them are one text in the store
 * (JSON), written by src/ops/switches.ts and read beside decisions (live.ts). Unrecognized content is ignored.
 */

/** When it was switched, by which operator, and until when it counts. */
export interface Switch {
  at: Date
  by: string
  /** When it expires. Absent: it stays until it is switched back. */
  until?: Date
  reason?: string
}

/** Replaces settings of a rule; what is absent stays as in the config. */
export interface RuleSwitch extends Switch {
  mode?: SwitchMode
  /** The share of callers for whom the rule is enforced, 0 to 1. */
  share?: number
}

export const SWITCH_MODES = ['off', 'shadow', 'enforce'] as const
export type SwitchMode = (typeof SWITCH_MODES)[number]

export interface Switches {
  /** No rule counts anything; credentials and blocks are still checked. */
  kill?: Switch
  /** By the name of the rule; for a limit by name `<limit>/<rule>`. */
  rules: ReadonlyMap<string, RuleSwitch>
}

export const NO_SWITCHES: Switches = { rules: new Map() }

/** @param text as it is stored; null where nothing is */
export function parseSwitches(text: string | null): Switches {
  const { kill, rules } = objectIn(text)
  const killing = parseSwitch(kill)
  const named = Object.entries(isObject(rules) ? rules : {}).flatMap(([name, value]) => {
    const parsed = parseRuleSwitch(value)
    return parsed ? [[name, parsed] as const] : []
  })
  return { ...(killing && { kill: killing }), rules: new Map(named) }
}

export function formatSwitches({ kill, rules }: Switches): string {
  return JSON.stringify({ ...(kill && { kill }), rules: Object.fromEntries(rules) })
}

/** Without the switches that have expired; the very same where none has. */
export function activeAt(switches: Switches, nowMs: number): Switches {
  const { kill, rules } = switches
  if (!kill && rules.size === 0) return switches
  const active = [...rules].filter(([, each]) => !isOver(each, nowMs))
  const isKilled = kill !== undefined && !isOver(kill, nowMs)
  if (active.length === rules.size && isKilled === (kill !== undefined)) return switches
  return { ...(isKilled && { kill }), rules: new Map(active) }
}

/** Whether both hold the very same switches of one text. */
export function areSame(a: Switches, b: Switches): boolean {
  if (a === b) return true
  return (
    a.kill === b.kill &&
    a.rules.size === b.rules.size &&
    [...a.rules].every(([name, each]) => b.rules.get(name) === each)
  )
}

export function isOver({ until }: Switch, nowMs: number): boolean {
  return until !== undefined && until.getTime() <= nowMs
}

function objectIn(text: string | null): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text ?? '')
    return isObject(value) ? value : {}
  } catch {
    return {}
  }
}

/** A switch without a time or a name is ignored, and so is one whose end cannot be read: it would never expire. */
function parseSwitch(value: unknown): Switch | undefined {
  if (!isObject(value)) return undefined
  const { at, by, until, reason } = value
  const [setAt, endsAt] = [timeOf(at), timeOf(until)]
  if (!setAt || typeof by !== 'string' || (until !== undefined && !endsAt)) return undefined
  return {
    at: setAt,
    by,
    ...(endsAt && { until: endsAt }),
    ...(typeof reason === 'string' && { reason }),
  }
}

function parseRuleSwitch(value: unknown): RuleSwitch | undefined {
  const common = parseSwitch(value)
  if (!common) return undefined
  const { mode: written, share } = value as Record<string, unknown>
  const mode = SWITCH_MODES.find(name => name === written)
  const isShare = typeof share === 'number' && share >= 0 && share <= 1
  if ((written !== undefined && !mode) || (share !== undefined && !isShare)) return undefined
  return { ...common, ...(mode && { mode }), ...(isShare && { share }) }
}

function timeOf(text: unknown): Date | undefined {
  const time = new Date(typeof text === 'string' ? text : Number.NaN)
  return Number.isNaN(time.getTime()) ? undefined : time
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
