/** What a command of `npx sluicegate limits` is about: a limit by name and an identity, or a caller of the gateway. */
import { type Command, InvalidArgumentError } from 'commander'
import { AdminError } from '../../ops/admin-error.ts'
import type { CallerIdentity } from '../../ops/caller-identity.ts'
import { parseConsumerName, parseMode } from '../../ops/names.ts'
import type { CallNumbers } from '../../set-ups/limits/arguments.ts'
import { parsePart } from './arguments.ts'

export interface TargetFlags {
  by?: Record<string, string>
  consumer?: string
  address?: string
  mode?: string
  plan?: string
  numbers?: CallNumbers
}

export const addTarget = (command: Command) =>
  command
    .argument('[limit]', 'name of a limit in the config')
    .option(
      '--by <part=value>',
      'value of a part, such as account=42 or header:x-tenant=a; once for each part',
      parsePart,
    )
    .option('--consumer <name>', 'consumer, for the gateway rules that count by it')
    .option('--address <address>', 'address, for the gateway rules that count by it')
    .option('--mode <mode>', 'mode of the caller: live or test (default: live)')

/** The argument and options of a command about a limit by name alone. */
export const addLimit = (command: Command) =>
  command
    .argument('<limit>', 'name of a limit in the config')
    .option('--by <part=value>', 'value of a part, such as account=42; once for each part', parsePart)

/** The option of commands that use a limit whose numbers each call gives. */
export const addNumbers = (command: Command) =>
  command.option(
    '--numbers <rule=limit/period>',
    "numbers for a rule with numbers: 'call', such as quota=300/1m or quota=300/1m,burst=50; once for each rule",
    parseNumbers,
  )

function parseNumbers(text: string, others: CallNumbers = {}): CallNumbers {
  const [, rule, limit, period, atOnce, units] =
    /^([\w-]+)=(\d{1,10})(?:\/([^,]+))?(?:,(burst|queue)=(\d{1,10}))?$/.exec(text) ?? []
  if (!rule)
    throw new InvalidArgumentError(
      'Use the form rule=limit/period, such as quota=300/1m or quota=300/1m,burst=50.',
    )
  const numbers = {
    limit: Number(limit),
    ...(period && { period }),
    ...(atOnce && { [atOnce]: Number(units) }),
  }
  return { ...others, [rule]: numbers }
}

export type Target = { kind: 'limit'; name: string } | { kind: 'caller' }

export function parseTarget(
  limit: string | undefined,
  { consumer, address, mode, by, plan }: TargetFlags,
): Target {
  const hasCaller = [consumer, address, mode].some(value => value !== undefined)
  if (limit === undefined ? !hasCaller && !by : hasCaller)
    throw new AdminError(
      'usage',
      'Use either the name of a limit, or a caller: --consumer, --address, --mode, or the parts of its identity with --by.',
    )
  if (limit === undefined) return { kind: 'caller' }
  if (plan !== undefined)
    throw new AdminError('usage', '--plan cannot be used with a limit by name. Leave it out.')
  return { kind: 'limit', name: limit }
}

/** `--consumer`, `--address` and `--mode` are short for `--by consumer=…`, `--by address=…` and `--by mode=…`. */
export async function parseCaller({ by = {}, ...flags }: TargetFlags): Promise<CallerIdentity> {
  for (const part of ['consumer', 'address', 'mode'] as const) {
    if (flags[part] !== undefined && by[part] !== undefined)
      throw new AdminError('usage', `--${part} and --by ${part}=… are the same. Use one of them.`)
  }
  const { consumer = by.consumer, address = by.address, mode = by.mode } = flags
  const { consumer: _, address: __, mode: ___, ...others } = by
  return {
    ...(consumer !== undefined && { consumer: await parseConsumerName(consumer) }),
    ...(address !== undefined && { address }),
    ...(mode !== undefined && { mode: parseMode(mode) }),
    ...others,
  }
}

/** ` of account=42`, behind the name of a limit. Empty if all calls are counted together. */
export function identityText(by: Readonly<Record<string, string>>): string {
  const parts = Object.entries(by).map(([name, value]) => `${name}=${value}`)
  return parts.length > 0 ? ` of ${parts.join(' ')}` : ''
}

/** `consumer 'acme', route 'reports'` */
export const callerText = (identity: CallerIdentity) =>
  Object.entries(identity)
    .map(([part, value]) => `${part} '${value}'`)
    .join(', ')
