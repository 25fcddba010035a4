/** Documents about live switches. */
import type { Config } from '../../config/compile.ts'
import type { ConsumerRecord } from '../../store/records.ts'
import type { RuleSwitch, Switch, Switches } from '../../switches/switches.ts'
import { isBlockedNow } from '../blocks.ts'
import type { CheckedConfig } from '../context.ts'
import { listSwitchable, type Switchable, type SwitchStatus, switchStatusOf } from '../switches.ts'
import { type BlockDocument, blockDocument, type OverrideDocument, overrideDocument } from './consumers.ts'
import { type Json, toJson } from './json.ts'

export interface SwitchesDocument {
  /** null: the kill switch was not set. It is on if its status is `applies`. */
  kill: (Json<Switch> & { status: SwitchStatus }) | null
  rules: RuleSwitchDocument[]
}

export type RuleSwitchDocument = Json<RuleSwitch> & {
  rule: string
  /** What the config says. null: it has no such rule. */
  config: Switchable | null
  status: SwitchStatus
}

/** All that differs from the config now. */
export interface ExceptionsDocument extends SwitchesDocument {
  blocked: ({ consumer: string } & BlockDocument)[]
  overrides: ({ consumer: string } & OverrideDocument)[]
  /** Of limits by name that have some. */
  limitOverrides: LimitOverridesDocument[]
}

/** The overrides of all identities of a limit by name. */
export interface LimitOverridesDocument {
  limit: string
  overrides: ({ identity: Readonly<Record<string, string>> } & OverrideDocument)[]
}

export function switchesDocument(
  switches: Switches,
  config: Pick<Config, 'rules' | 'limits' | 'shedding'>,
): SwitchesDocument {
  const known = listSwitchable(config)
  return toJson({
    kill: switches.kill ? { ...switches.kill, status: switchStatusOf(switches.kill) } : null,
    rules: [...switches.rules].map(([name, each]) => ({
      rule: name,
      ...each,
      config: known.get(name) ?? null,
      status: switchStatusOf(each, known.has(name)),
    })),
  })
}

/** @param consumers that are blocked or have overrides @param limitOverrides that have not ended */
export const exceptionsDocument = (
  switches: Switches,
  consumers: readonly ({ consumer: string } & ConsumerRecord)[],
  limitOverrides: LimitOverridesDocument[],
  config: Pick<CheckedConfig, 'rules' | 'limits' | 'shedding' | 'overrides'>,
): ExceptionsDocument => ({
  ...switchesDocument(switches, config),
  blocked: consumers
    .filter(isBlockedNow)
    .map(({ consumer, ...record }) => ({ consumer, ...blockDocument(record) })),
  overrides: consumers.flatMap(({ consumer, overrides }) =>
    overrides.map(each => ({ consumer, ...overrideDocument(each, config) })),
  ),
  limitOverrides,
})
