/** `npx sluicegate audit`: who has changed what. */
import { Command, InvalidArgumentError } from 'commander'
import { sinceOf } from '../../ops/audit.ts'
import { addStoreOptions, openStore, type StoreFlags } from './administration.ts'
import { followAudit, printAudit } from './audit-output.ts'
import { withExamples } from './help.ts'
import type { ConfigLoader } from './load-config.ts'

interface Flags extends StoreFlags {
  target?: string
  since?: Date
  follow?: boolean
}

export function auditCommand(load: ConfigLoader): Command {
  return withExamples(
    addStoreOptions(new Command('audit'))
      .summary('show who has changed what')
      .description(
        'Show changes of keys, consumers, switches, limits and tokens, newest first. The names of operators are claimed, those of tokens verified. On a Redis Cluster, use --target or --since where more than 1,000 consumers, switches and tokens have changed.',
      )
      .option('--target <name>', 'only of this consumer, key, rule, limit, token or address')
      .option('--since <duration>', "how far back, such as '7d' (default: all that is kept)", parseSince)
      .option('--follow', 'show the last changes, then each new one; with --json, one a line')
      .action(audit.bind(null, load)),
    'audit --target acme --since 7d',
    'audit --follow',
  )
}

async function audit(load: ConfigLoader, flags: Flags): Promise<void> {
  const { store } = await openStore(flags, load)
  const { target, since, follow } = flags
  await (follow ? followAudit : printAudit)(store, flags, { target, since })
}

function parseSince(text: string): Date {
  const since = sinceOf(text)
  if (since) return since
  throw new InvalidArgumentError("Use a duration such as '7d'.")
}
