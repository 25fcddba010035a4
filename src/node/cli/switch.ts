/** `npx sluicegate switch …`: shows and changes live switches, which change limits without a deployment. */
import { Argument, Command } from 'commander'
import { didYouMean } from '../../config/check/did-you-mean.ts'
import { AdminError } from '../../ops/admin-error.ts'
import type { AdminStore } from '../../ops/admin-store.ts'
import { blockText, isBlockedNow } from '../../ops/blocks.ts'
import { listExceptionalConsumers } from '../../ops/consumers.ts'
import { exceptionsDocument, switchesDocument } from '../../ops/documents/switches.ts'
import { switchOf } from '../../ops/inputs.ts'
import { listOverridesOfLimits } from '../../ops/overrides.ts'
import {
  findSwitchable,
  killLimits,
  readSwitches,
  resetRule,
  restoreLimits,
  switchRule,
} from '../../ops/switches.ts'
import { SWITCH_MODES } from '../../switches/switches.ts'
import {
  addChangeOptions,
  addStoreOptions,
  mustConfirm,
  openStore,
  type SignedFlags,
  type StoreFlags,
  signatureOf,
} from './administration.ts'
import { parseShare } from './arguments.ts'
import { printAudit } from './audit-output.ts'
import { blockCommand, unblockCommand } from './consumers.ts'
import { tableOfDocuments } from './document-text.ts'
import { withExamples } from './help.ts'
import { type ConfigLoader, loadConfig } from './load-config.ts'
import { alertCell, note, print, table } from './output.ts'
import { allOverrides, overrideCommand } from './overrides.ts'
import { killSwitchText, noteOfShare, ruleSwitchText, switchTable } from './switch-output.ts'

type Flags = StoreFlags & SignedFlags & { yes?: boolean }
type RuleFlags = Flags & { share?: number }
type RuleState = (typeof RULE_STATES)[number]

const RULE_STATES = [...SWITCH_MODES, 'reset'] as const

export function switchCommand(load: ConfigLoader = loadConfig): Command {
  return (
    // Has no options of its own, because they would capture the options of its subcommands.
    new Command('switch')
      .summary('change limits live, without a deployment')
      .description(
        'Change limits live, without a deployment: the kill switch, modes and shares of rules, blocks and overrides. ' +
          'Loosening takes about a second; tightening, a block or an override takes one request more. ' +
          'Without a command, all switches are shown.',
      )
      .addCommand(
        withExamples(
          addStoreOptions(new Command('show'))
            .summary('show all switches (default)')
            .description('Show the kill switch, switched rules, blocked consumers and overrides.')
            .option('--history', 'show who has switched what instead, newest first')
            .action(show.bind(null, load)),
          'switch',
          'switch --history',
        ),
        { isDefault: true },
      )
      .addCommand(
        withExamples(
          addChangeOptions(addStoreOptions(new Command('kill')))
            .summary('turn all limits off and on')
            .description(
              'Turn the kill switch on or off. While it is on, no rule limits any request; credentials and blocks are still checked.',
            )
            .addArgument(new Argument('<state>', 'state of the kill switch').choices(['on', 'off']))
            .option('--yes', "do not ask for confirmation; without a terminal, 'on' needs this")
            .action(kill.bind(null, load)),
          'switch kill on --for 30m --reason incident',
          'switch kill off',
        ),
      )
      .addCommand(
        withExamples(
          addChangeOptions(addStoreOptions(new Command('rule')))
            .summary('change the mode or the share of a rule')
            .description('Change the mode of a rule, or the share of callers for whom it is enforced.')
            .argument('<name>', 'name of the rule; for a rule of a limit by name: <limit>/<rule>')
            .addArgument(new Argument('[state]', 'new mode; reset: back to the config').choices(RULE_STATES))
            .option(
              '--share <fraction>',
              'share of callers for whom the rule is enforced, from 0 to 1',
              parseShare,
            )
            .option('--yes', 'accepted for scripts; this command never asks for confirmation')
            .action(rule.bind(null, load)),
          'switch rule consumer-minute shadow --for 1h',
          'switch rule consumer-minute enforce --share 0.25',
          'switch rule consumer-minute reset',
        ),
      )
      .addCommand(blockCommand(load, 'switch'))
      .addCommand(unblockCommand(load, 'switch'))
      .addCommand(overrideCommand(load, 'switch'))
  )
}

async function show(load: ConfigLoader, flags: StoreFlags & { history?: boolean }): Promise<void> {
  const { store, config } = await openStore(flags, load)
  if (flags.history) return await printAudit(store, flags, { kind: 'switches' })
  const [switches, consumers] = [await readSwitches(store), await listExceptionalConsumers(store)]
  const blocked = consumers.filter(isBlockedNow)
  const limitOverrides = await listOverridesOfLimits(store, config)
  const document = exceptionsDocument(switches, consumers, limitOverrides, config)
  print(flags, document, () => {
    const rows = blocked.map(({ consumer, ...record }) => [consumer, alertCell(blockText(record))])
    return [
      `${killSwitchText(document)}${inEnvironmentOf(store)}`,
      '',
      switchTable(document),
      '',
      rows.length > 0 ? table(['BLOCKED', '(UTC)'], rows) : 'No consumer is blocked.',
      '',
      document.overrides.length > 0 ? allOverrides(consumers, config) : 'No consumer has an override.',
      ...limitOverrides.flatMap(({ limit, overrides }) => [
        '',
        `Overrides of the limit ${limit}:`,
        tableOfDocuments(overrides),
      ]),
    ].join('\n')
  })
}

async function kill(load: ConfigLoader, state: 'on' | 'off', flags: Flags): Promise<void> {
  if (state === 'off') mustHaveNoEnd(flags, 'off')
  const set = state === 'on' ? switchOf(signatureOf(flags)) : undefined
  const { store, config } = await openStore(flags, load)
  if (set) await mustConfirm('Turn the kill switch on? While it is on, no rule limits any request.', flags)
  const { switches, isChanged } = set
    ? { switches: await killLimits(store, set), isChanged: true }
    : await restoreLimits(store)
  const document = switchesDocument(switches, config)
  const text = isChanged ? killSwitchText(document) : 'The kill switch was already off: nothing was changed.'
  print(flags, document, () => `${text}${inEnvironmentOf(store)}`)
}

async function rule(
  load: ConfigLoader,
  name: string,
  state: RuleState | undefined,
  flags: RuleFlags,
): Promise<void> {
  const { share } = flags
  if (state === 'reset') {
    mustHaveNoEnd(flags, state)
    if (share !== undefined)
      throw new AdminError('usage', 'reset cannot be combined with --share. Use one of them.')
    const { store, config } = await openStore(flags, load)
    const { switches, isChanged } = await resetRule(store, name)
    // Without a switch, the name of the rule may be misspelled.
    if (!isChanged) findSwitchable(config, name, didYouMean)
    const text = isChanged
      ? `Rule '${name}' follows the config again.`
      : `Rule '${name}' was not switched: nothing was changed.`
    return print(flags, switchesDocument(switches, config), () => `${text}${inEnvironmentOf(store)}`)
  }
  if (state === undefined && share === undefined) {
    throw new AdminError('usage', `No change is given. Use one of ${RULE_STATES.join(', ')}, or --share.`)
  }
  if (share !== undefined && (state === 'off' || state === 'shadow')) {
    throw new AdminError(
      'usage',
      `--share cannot be combined with ${state}: it is the share of callers for whom the rule is enforced.`,
    )
  }
  const set = {
    ...switchOf(signatureOf(flags)),
    ...(state && { mode: state }),
    ...(share !== undefined && { share }),
  }
  const { store, config } = await openStore(flags, load)
  findSwitchable(config, name, didYouMean)
  const document = switchesDocument(await switchRule(store, name, set), config)
  const ofShare = share === undefined ? undefined : noteOfShare(document, name)
  if (ofShare) note(ofShare)
  print(flags, document, () => `${ruleSwitchText(document, name)}${inEnvironmentOf(store)}`)
}

/** So that it is clear which deployment was switched. */
function inEnvironmentOf({ environment }: AdminStore): string {
  return environment === undefined ? '' : ` This is environment '${environment}'.`
}

/** @throws AdminError for an end that cannot be stored, because the command deletes the whole record */
export function mustHaveNoEnd({ for: duration, until }: SignedFlags, state: string): void {
  if (duration === undefined && until === undefined) return
  throw new AdminError(
    'usage',
    `--for and --until cannot be stored: ${state} deletes the whole record. Leave them out.`,
  )
}
