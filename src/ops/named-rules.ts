/** All rules of a config by name: those of the gateway, of the shedders, and of limits by name. */
import type { Config, Rule } from '../config/compile.ts'
import { switchNameOf } from '../config/compile-rule.ts'
import { WORKER_UTILIZATION } from '../config/compile-shedding.ts'

export interface NamedRule {
  /** As the statistics have it: in a limit by name `<limit>/<rule>`. */
  name: string
  /** The name of its live switch. All rules of a shedder share one. */
  switchName: string
  rule: Pick<Rule, 'mode' | 'enforcedShare'>
}

/** In the order of the config, then those of the shedders and of limits by name. Includes rules that are off, because they may have been on. */
export function namedRules({
  rules,
  shedding,
  limits,
}: Pick<Config, 'rules' | 'shedding' | 'limits'>): NamedRule[] {
  const ofShedder = shedding?.workerUtilization?.rules ?? []
  return [
    ...rules.map(rule => ({ name: rule.name, switchName: switchNameOf(rule), rule })),
    ...ofShedder.map(rule => ({ name: rule.name, switchName: WORKER_UTILIZATION, rule })),
    ...[...limits].flatMap(([limit, ofLimit]) =>
      ofLimit.map(rule => {
        const name = `${limit}/${rule.name}`
        return { name, switchName: name, rule }
      }),
    ),
  ]
}
