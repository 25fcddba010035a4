/** `npx sluice keys …`: API keys. */
import { Command } from 'commander'
import { isConsumerName, mintApiKey, sha256 } from '../../credentials/api-key.ts'
import { credentialKey } from '../../store/keys.ts'
import { restStore } from './arguments.ts'
import { loadConfig } from './load-config.ts'
import { storeKey } from './rest-store.ts'

interface CreateFlags {
  consumer: string
  plan?: string
  url?: string
  token?: string
}

export function keysCommand(): Command {
  return new Command('keys')
    .description('API keys.')
    .addCommand(
      new Command('create')
        .description('Make a key for a consumer. It is shown this once; the store keeps its SHA-256.')
        .requiredOption('--consumer <name>', 'whose key it is: letters, digits, . _ -')
        .option('--plan <name>', 'one of the plans in sluice.config.ts (default: the first)')
        .option('--url <url>', 'of the store (default: $UPSTASH_REDIS_REST_URL)')
        .option('--token <token>', 'of the store (default: $UPSTASH_REDIS_REST_TOKEN)')
        .action(create),
    )
}

async function create({ consumer, plan, ...flags }: CreateFlags): Promise<void> {
  const { plans } = await loadConfig()
  if (!isConsumerName(consumer)) {
    throw new Error(
      `--consumer: '${consumer}' is no consumer name. Use 1 to 64 letters, digits, '.', '_' and '-', ` +
        'beginning with a letter or digit.',
    )
  }
  const chosen = plan ?? plans[0]!
  if (!plans.includes(chosen)) {
    throw new Error(`--plan: '${chosen}' is not in sluice.config.ts. Its plans are ${plans.join(', ')}.`)
  }
  const key = mintApiKey(consumer)
  await storeKey(restStore(flags), key, { consumer, plan: chosen })
  // The key alone on standard output, so that it can be piped into a secret store.
  const record = credentialKey(consumer, await sha256(key))
  console.error(
    `A key for ${consumer} on plan ${chosen}. It cannot be shown again. To revoke it: DEL ${record}`,
  )
  console.log(key)
}
