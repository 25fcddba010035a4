/** `npx sluicegate limits acquire`, `take` and `refund`: limits by name for shells, CI and cron. */
import { text } from 'node:stream/consumers'
import { Command, InvalidArgumentError } from 'commander'
import { formatWait, parseDuration } from '../../config/duration.ts'
import { AdminError } from '../../ops/admin-error.ts'
import { timeWithSeconds } from '../../ops/times.ts'
import type { CallNumbers, CostOptions } from '../../set-ups/limits/arguments.ts'
import { addStoreOptions, openStore, type StoreFlags } from './administration.ts'
import { parseUnits } from './arguments.ts'
import { ExitWith } from './exit-with.ts'
import { withExamples } from './help.ts'
import { callsByStore, type DecisionDocument, type LimitCall, type LimitCalls } from './limit-calls.ts'
import { addLimit, addNumbers, identityText } from './limit-target.ts'
import type { ConfigLoader } from './load-config.ts'
import { note, print } from './output.ts'
import { type CommandEnd, runCommand } from './run-command.ts'

/** The exit code of a call that may be made later: EX_TEMPFAIL of sysexits.h. */
const TRY_LATER = 75

/** Says once that a renewal has failed. */
export interface Lost {
  report(cause: string): void
}

export interface CallFlags extends StoreFlags {
  by?: Record<string, string>
  cost?: CostOptions
  numbers?: CallNumbers
  timeout?: number
  receipt?: string
}

const EXIT_CODES = `
Exit code: that of the command (126 and 127 as in shells); 75 if it may not run now, or not within the timeout.`

export const acquireCommand = (load: ConfigLoader) =>
  withExamples(
    addNumbers(addCost(addLimit(addStoreOptions(new Command('acquire')))))
      .summary('wait for a limit, and run a command')
      .description(
        'Wait for a turn under a limit by name, and run a command. Units in flight are held as long as it runs.',
      )
      .argument('<command...>', 'the command and its arguments, after --')
      .option('--timeout <duration>', 'how long to wait, such as 30s (default: no limit)', parseTimeout)
      .addHelpText('after', EXIT_CODES)
      .action(async (limit: string, command: string[], flags: CallFlags) => {
        const lost: Lost = { report() {} }
        const calls = await callsOf(load, flags, () => lost.report('The store does not answer.'))
        await acquire(calls, lost, limit, command, flags)
      }),
    'limits acquire exports --by account=42 --timeout 30s -- ./export.sh',
  )

export const takeCommand = (load: ConfigLoader) =>
  withExamples(
    addNumbers(addCost(addLimit(addStoreOptions(new Command('take')))))
      .summary('decide once, and spend')
      .description('Decide once under a limit by name, and spend. The exit code is 75 if it refuses.')
      .action(async (limit: string, flags: CallFlags) => take(await callsOf(load, flags), limit, flags)),
    'limits take zendesk --by account=42 --json',
  )

export const refundCommand = (load: ConfigLoader) =>
  withExamples(
    addLimit(addStoreOptions(new Command('refund')))
      .summary('give back what take has spent')
      .description('Give back what limits take has spent, once.')
      .requiredOption('--receipt <json>', 'what take --json has printed, or - for standard input')
      .option('--cost <units>', 'units to give back (default: all)', parseUnits)
      .action(async (limit: string, flags: RefundFlags) => refund(await callsOf(load, flags), limit, flags)),
    'limits refund zendesk --receipt - < taken.json',
  )

export type RefundFlags = Omit<CallFlags, 'cost'> & { cost?: number }

async function callsOf(load: ConfigLoader, flags: StoreFlags, onLost = () => {}): Promise<LimitCalls> {
  const { store, config } = await openStore(flags, load)
  return callsByStore(store, config, onLost)
}

/** @param lost set once the command runs @throws ExitWith */
export async function acquire(
  calls: LimitCalls,
  lost: Lost,
  limit: string,
  command: readonly string[],
  flags: CallFlags,
): Promise<never> {
  const call = callOf(limit, flags)
  const decision = await calls.acquire(call, flags.timeout ?? Number.POSITIVE_INFINITY)
  if (!decision.allowed) {
    await calls.release()
    throw refusal(call, decision, ' The command was not run.')
  }
  if (decision.degraded) note(uncountedText(decision))
  lost.report = cause => {
    lost.report = () => {}
    console.error(`${cause} The command goes on, and its units may be counted as free.`)
  }
  const end: CommandEnd = await runCommand(command)
  lost.report = () => {}
  if (end.error !== undefined) {
    console.error(`The command '${command[0]}' cannot be run (${end.error}).`)
    if (decision.receipt) await calls.refund(limit, decision.receipt).catch(() => {})
  }
  await calls.release()
  throw new ExitWith(end.code)
}

export async function take(calls: LimitCalls, limit: string, flags: CallFlags): Promise<void> {
  const call = callOf(limit, flags)
  const decision = await calls.take(call)
  await calls.release()
  if (flags.json) print(flags, decision, String)
  if (!decision.allowed) throw refusal(call, decision, '')
  if (decision.degraded) note(uncountedText(decision))
  if (!flags.json) console.log(takenText(call, decision))
}

export async function refund(calls: LimitCalls, limit: string, flags: RefundFlags): Promise<void> {
  const receipt = receiptIn(flags.receipt === '-' ? await text(process.stdin) : flags.receipt!)
  const document = await calls.refund(limit, receipt, flags.cost)
  await calls.release()
  print(flags, document, () => `Given back to limit '${limit}': ${leftText(document)}.`)
}

/** The receipt alone, or the whole document of `take`. @throws AdminError */
function receiptIn(json: string): unknown {
  try {
    const value = JSON.parse(json) as { receipt?: unknown }
    return value.receipt ?? value
  } catch {
    throw new AdminError('usage', 'The receipt is not JSON. Use what limits take --json has printed.')
  }
}

const callOf = (limit: string, { by = {}, cost = {}, numbers }: CallFlags): LimitCall => ({
  ...{ limit, by, ...cost },
  ...(numbers && { numbers }),
})

const nameOf = ({ limit, by }: LimitCall) => `Limit '${limit}'${identityText(by)}`

/** Says why and until when, on standard error. @returns the error that ends the command line */
function refusal(call: LimitCall, decision: DecisionDocument, effect: string): Error {
  const { retryAfterMs, pausedUntil, rules, degraded } = decision
  const refusing = rules.filter(({ mode, allowed }) => mode === 'enforce' && !allowed).map(({ name }) => name)
  const by = refusing.length > 0 ? ` (${refusing.join(', ')})` : ''
  if (retryAfterMs < 0)
    return new AdminError('refused', `${nameOf(call)} never admits this cost${by}.${effect}`)
  const why = pausedUntil
    ? `is paused until ${timeWithSeconds(new Date(pausedUntil))} UTC`
    : degraded
      ? `cannot be checked: the store does not answer (${degraded})`
      : `refuses${by}; again in ${formatWait(retryAfterMs * 1e3)}`
  note(`${nameOf(call)} ${why}.${effect}`)
  return new ExitWith(TRY_LATER)
}

const uncountedText = ({ degraded }: DecisionDocument) =>
  degraded === 'kill-switch'
    ? 'The kill switch is on: no limit counts.'
    : `The store has not decided (${degraded}): only this process counts.`

const takenText = (call: LimitCall, decision: DecisionDocument) =>
  `${nameOf(call)} admits: ${leftText(decision)}${decision.delayMs > 0 ? `; start in ${formatWait(decision.delayMs * 1e3)}` : ''}.`

const leftText = ({ rules }: Pick<DecisionDocument, 'rules'>) =>
  rules.map(({ name, remaining }) => `${name} has ${remaining} left`).join(', ') || 'nothing is counted'

const addCost = (command: Command) =>
  command.option(
    '--cost <units>',
    'requests (default: 1), or units of the config, such as tokens=500; once for each',
    parseCost,
  )

function parseCost(argument: string, { cost, amounts }: CostOptions = {}): CostOptions {
  const [, unit, units] = /^(?:([^=]+)=)?(\d{1,10})$/.exec(argument) ?? []
  if (units === undefined)
    throw new InvalidArgumentError('Use a whole number, or a unit with one, such as tokens=500.')
  if (unit === undefined) return { cost: Number(units), ...(amounts && { amounts }) }
  return { ...(cost !== undefined && { cost }), amounts: { ...amounts, [unit]: Number(units) } }
}

function parseTimeout(argument: string): number {
  const microseconds = parseDuration(argument)
  if (microseconds === undefined) throw new InvalidArgumentError('Use a duration, such as 30s or 5m.')
  return microseconds / 1e3
}
