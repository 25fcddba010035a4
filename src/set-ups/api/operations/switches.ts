/** What the OpenAPI document says about live switches. */
import type { PartOperations } from '../reply-schemas.ts'
import { SIGNATURE } from './shared.ts'

export const switchesOperations: PartOperations = {
  operations: {
    'GET switches': ['listSwitches', 'Switches', 'Show the live switches'],
    'PUT switches/{rule}': [
      'setSwitch',
      'Switches',
      'Change the mode or the share of a rule',
      'A rule of a limit by name is `<limit>/<rule>`, with the slash encoded as %2F.',
    ],
    'DELETE switches/{rule}': ['removeSwitch', 'Switches', 'Let a rule follow the config again'],
    'PUT kill-switch': ['setKillSwitch', 'Switches', 'Turn all limits off'],
    'DELETE kill-switch': ['removeKillSwitch', 'Switches', 'Turn all limits on again'],
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
