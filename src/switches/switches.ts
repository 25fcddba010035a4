/**
 * Live switches change the mode of rules without a deployment. All switches are one JSON text in the store, which
 * src/ops/switches.ts writes and live.ts reads. Unrecognized content is ignored.
 */

/** A switch records when it was set, which operator set it, and when it expires. */
export interface Switch {
  at: Date
  by: string
  /** Absent: it never expires. */
  until?: Date
  reason?: string
}

/** Replaces settings of a rule. Absent settings stay as in the config. */
export interface RuleSwitch extends Switch {
  mode?: SwitchMode
  /** The share of callers that the rule is enforced for, from 0 to 1. */
  share?: number
}

export const SWITCH_MODES = ['off', 'shadow', 'enforce'] as const
export type SwitchMode = (typeof SWITCH_MODES)[number]

export interface Switches {
  /** The kill switch: no rule counts anything. Credentials and blocks are still checked. */
  kill?: Switch
  /** By the name of the rule. A rule of a limit by name is called `<limit>/<rule>`. */
  rules: ReadonlyMap<string, RuleSwitch>
}

export const NO_SWITCHES: Switches = { rules: new Map() }

export const hasSwitches = ({ kill, rules }: Switches): boolean => kill !== undefined || rules.size > 0

/** Reads the stored text. @param text null if nothing is stored */
export function parseSwitches(text: string | null): Switches {
  const { kill, rules } = parseObject(text)
  const parsedKill = parseSwitch(objectOf(kill))
  const named = Object.entries(objectOf(rules)).flatMap(([name, value]) => {
    const parsed = parseRuleSwitch(objectOf(value))
    return parsed ? [[name, parsed] as const] : []
  })
  return { ...(parsedKill && { kill: parsedKill }), rules: new Map(named) }
}

/** Writes the text to store. */
export function formatSwitches({ kill, rules }: Switches): string {
  return JSON.stringify({ ...(kill && { kill }), rules: Object.fromEntries(rules) })
}

/** Removes the switches that have expired. Returns the given object if none has. */
export function dropExpired(switches: Switches, nowMs: number): Switches {
  const { kill, rules } = switches
  const active = [...rules].filter(([, each]) => !hasExpired(each, nowMs))
  const isKilled = kill !== undefined && !hasExpired(kill, nowMs)
  if (active.length === rules.size && isKilled === (kill !== undefined)) return switches
  return { ...(isKilled && { kill }), rules: new Map(active) }
}

/** Whether both have identical switches, compared by reference. */
export const areSameSwitches = (a: Switches, b: Switches): boolean =>
  a === b ||
  (a.kill === b.kill &&
    a.rules.size === b.rules.size &&
    [...a.rules].every(([name, each]) => b.rules.get(name) === each))

/** Whether a switch has expired at a time (ms since the epoch). */
export const hasExpired = ({ until }: Switch, nowMs: number): boolean =>
  until !== undefined && until.getTime() <= nowMs

/** Ignores a switch without a time or an operator. Also ignores one whose end cannot be read, because it would never expire. */
function parseSwitch({ at, by, until, reason }: Written): Switch | undefined {
  const [setAt, endsAt] = [parseTime(at), parseTime(until)]
  if (!setAt || typeof by !== 'string' || (until !== undefined && !endsAt)) return undefined
  return {
    at: setAt,
    by,
    ...(endsAt && { until: endsAt }),
    ...(typeof reason === 'string' && { reason }),
  }
}

function parseRuleSwitch(written: Written): RuleSwitch | undefined {
  const common = parseSwitch(written)
  const { share } = written
  const mode = SWITCH_MODES.find(name => name === written.mode)
  const isShare = typeof share === 'number' && share >= 0 && share <= 1
  if (!common || (written.mode !== undefined && !mode) || (share !== undefined && !isShare)) return undefined
  return { ...common, ...(mode && { mode }), ...(isShare && { share }) }
}

function parseTime(text: unknown): Date | undefined {
  const time = new Date(typeof text === 'string' ? text : Number.NaN)
  return Number.isNaN(time.getTime()) ? undefined : time
}

type Written = Record<string, unknown>

function parseObject(text: string | null): Written {
  try {
    return objectOf(JSON.parse(text ?? ''))
  } catch {
    return {}
  }
}

/** The properties of an object; none for any other value. */
const objectOf = (value: unknown): Written =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Written) : {}
