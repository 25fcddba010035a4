/** `npx sluicegate limits correct …`: mends a settlement that was wrong. */
import { Command, InvalidArgumentError, Option } from 'commander'
import { AdminError } from '../../ops/admin-error.ts'
import {
  type Correction,
  correctCaller,
  correctLimit,
  MAX_CORRECTION,
  ruleOfCaller,
  ruleOfLimit,
} from '../../ops/corrections.ts'
import { correctionDocument } from '../../ops/documents/limits.ts'
import type { RuleStanding } from '../../ops/limits.ts'
import { parsePlan } from '../../ops/names.ts'
import {
  addAuthorOptions,
  addStoreAndConfirmOptions,
  mustConfirm,
  openStore,
  type StoreFlags,
} from './administration.ts'
import { withExamples } from './help.ts'
import {
  addTarget,
  callerText,
  identityText,
  parseCaller,
  parseTarget,
  type TargetFlags,
} from './limit-target.ts'
import type { ConfigLoader } from './load-config.ts'
import { print, table } from './output.ts'
import { USAGE_HEADINGS, usageCells } from './usage-output.ts'

interface Flags extends StoreFlags, TargetFlags {
  rule: string
  spend?: number
  giveBack?: number
  yes?: boolean
}

export const correctCommand = (load: ConfigLoader) =>
  withExamples(
    addAuthorOptions(addTarget(addStoreAndConfirmOptions(new Command('correct'))), 'as')
      .summary('mend a wrong settlement')
      .description(
        'Spend units of a rule that is settled later, or give them back, in its current window. More than its limit becomes a debt.',
      )
      .requiredOption('--rule <name>', 'rule to correct')
      .addOption(new Option('--spend <units>', 'units to spend').argParser(parseAmount).conflicts('giveBack'))
      .option('--give-back <units>', 'units to give back', parseAmount)
      .option(
        '--plan <name>',
        "plan whose limits are shown (default: the plan of the consumer's keys, else of the consumer)",
      )
      .action(correct.bind(null, load)),
    'limits correct --consumer acme --rule tokens --give-back 500',
    'limits correct llm --by team=a --rule tokens --spend 500',
  )

function parseAmount(text: string): number {
  const units = Number(text)
  if (/^\d{1,10}$/.test(text) && units >= 1 && units <= MAX_CORRECTION) return units
  throw new InvalidArgumentError(`Use a whole number from 1 to ${MAX_CORRECTION}.`)
}

async function correct(load: ConfigLoader, limit: string | undefined, flags: Flags): Promise<void> {
  const { rule, spend, giveBack } = flags
  const amount = spend ?? giveBack
  if (amount === undefined)
    throw new AdminError('usage', 'Use --spend or --give-back with a number of units.')
  const target = parseTarget(limit, flags)
  const { store, config } = await openStore(flags, load)
  const units = spend ?? -amount
  const counted = target.kind === 'caller' ? await parseCaller(flags) : undefined
  const plan = flags.plan === undefined ? undefined : parsePlan(flags.plan, config.plans)
  const { by = {} } = flags
  const [found, whose] =
    target.kind === 'limit'
      ? [ruleOfLimit(config, target.name, rule), `limit '${target.name}'${identityText(by)}`]
      : [ruleOfCaller(config, counted!, rule), callerText(counted!)]
  const what = `${amount} ${found.unit} of rule '${rule}' of ${whose}`
  await mustConfirm(`${spend === undefined ? 'Give back' : 'Spend'} ${what}?`, flags)
  const correction =
    target.kind === 'limit'
      ? await correctLimit(store, config, target.name, by, rule, units)
      : await correctCaller(store, config, counted!, rule, units, plan)
  const of = target.kind === 'limit' ? { limit: target.name, by } : counted!
  const document = correctionDocument(of, found, units, correction)
  print(
    flags,
    document,
    () => `${spend === undefined ? 'Gave back' : 'Spent'} ${what}.\n\n${tableOf(correction)}`,
  )
}

function tableOf({ before, after }: Correction): string {
  const row = (name: string, { usage, remaining }: RuleStanding) => [
    name,
    ...usageCells(usage!),
    String(remaining),
  ]
  return table(['', ...USAGE_HEADINGS, 'REMAINING'], [row('before', before), row('after', after)])
}
