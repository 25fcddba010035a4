/** What the OpenAPI document says about live switches. */
import type { PartOperations } from '../reply-schemas.ts'
import { SIGNATURE } from './shared.ts'

export const switchesOperations: PartOperations = {
  operations: {
    'GET switches': 'listSwitches Switches',
    'PUT switches/{rule}': 'setSwitch Switches',
    'DELETE switches/{rule}': 'removeSwitch Switches',
    'PUT kill-switch': 'setKillSwitch Switches',
    'DELETE kill-switch': 'removeKillSwitch Switches',
  },
  schemas: {
    ...SIGNATURE,
    Switches: 'kill: KillSwitch|null, rules: RuleSwitch[]',
    KillSwitch: '...Signature, status: (applies|over)',
    RuleSwitch: `rule, ...Signature, mode?: (enforce|shadow|off), share?: number, config: Share|null,
      status: (applies|over|rule-gone)`,
    Share: 'mode: (enforce|shadow|off), share: number',
  },
}
