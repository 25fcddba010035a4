/** `npx sluicegate limits override …`: other numbers for one identity of a limit by name, for a time. */
import { Command } from 'commander'
import { listLimitOverrides, removeLimitOverride, setLimitOverride } from '../../ops/limit-overrides.ts'
import { limitOverrideRules } from '../../ops/overrides.ts'
import { addAuthorOptions, addStoreOptions, authorOf, openStore, type StoreFlags } from './administration.ts'
import { documentText } from './document-text.ts'
import { withExamples } from './help.ts'
import { addLimit } from './limit-target.ts'
import type { ConfigLoader } from './load-config.ts'
import { print } from './output.ts'
import { addOverrideOptions, inputIn, mustRemoveAlone, type OverrideFlags } from './overrides.ts'

interface Flags extends Omit<OverrideFlags, 'by'> {
  by?: Record<string, string>
  as?: string
}

export function limitOverrideCommand(load: ConfigLoader): Command {
  const command = addLimit(addStoreOptions(new Command('override')))
    .summary('override a rule for an identity')
    .description(
      'Give one identity other numbers, or another mode, for one rule of a limit by name. This replaces an earlier override of the rule.',
    )
    .argument('<rule>', 'name of a rule with overridable: true')
  return withExamples(
    addAuthorOptions(addOverrideOptions(command, 'identity'), 'as').action(override.bind(null, load)),
    'limits override messages minute --by user=42 --limit 100 --for 24h',
    'limits override messages minute --by user=42 --remove',
  )
}

export const limitOverridesCommand = (load: ConfigLoader): Command =>
  withExamples(
    addStoreOptions(new Command('overrides'))
      .summary('show overrides of a limit')
      .description('Show the overrides of all identities of a limit by name.')
      .argument('<limit>', 'name of a limit in the config')
      .action(async (limit: string, flags: StoreFlags) => {
        const context = await open(load, limit, flags)
        printOverrides(flags, await listLimitOverrides(context, limit))
      }),
    'limits overrides messages',
  )

async function override(load: ConfigLoader, limit: string, rule: string, flags: Flags): Promise<void> {
  const { by = {}, ...others } = flags
  const { remove, removeStale } = others
  if (remove) mustRemoveAlone(others)
  const input = inputIn(rule, others)
  const context = await open(load, limit, others)
  if (remove) return printOverrides(flags, await removeLimitOverride(context, limit, by, rule))
  const signature = { at: new Date(), by: authorOf(others), removeStale }
  printOverrides(flags, await setLimitOverride(context, limit, by, input, signature))
}

async function open(load: ConfigLoader, limit: string, flags: StoreFlags & Pick<Flags, 'as' | 'reason'>) {
  const { store, config } = await openStore(flags, load)
  return { store, config, overrides: limitOverrideRules(config, limit) }
}

export const printOverrides = (flags: { json?: boolean }, document: object): void =>
  print(flags, document, () => documentText(document))
