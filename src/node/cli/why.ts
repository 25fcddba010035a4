/** `npx sluicegate why`: why a caller is refused, or that it is not. */
import { Command } from 'commander'
import type { Config } from '../../config/compile.ts'
import { AdminError } from '../../ops/admin-error.ts'
import { whyDocument } from '../../ops/documents/why.ts'
import { parseWhyTarget, readWhy, withLastChange } from '../../ops/why.ts'
import { verdictOf } from '../../ops/why-verdict.ts'
import { addStoreOptions, openStore, type StoreFlags, secretOf } from './administration.ts'
import { withExamples } from './help.ts'
import type { ConfigLoader } from './load-config.ts'
import { print } from './output.ts'
import { unansweredText } from './unanswered.ts'
import { detailsOf } from './why-output.ts'

export function whyCommand(load: ConfigLoader): Command {
  return withExamples(
    addStoreOptions(new Command('why'))
      .summary('say why a caller is refused')
      .description(
        'Say why a caller is refused, since when and until when, or that it is not. Asks the rules without counting anything.',
      )
      .argument(
        '<caller>',
        'consumer, address, id of a key, or identity of limits by name; - reads a key from standard input',
      )
      .action(why.bind(null, load)),
    'why acme',
    'why 192.0.2.7',
    'why acme/0f3a9c1d2b4e',
    'why account=42',
  )
}

async function why(load: ConfigLoader, argument: string, flags: StoreFlags): Promise<void> {
  const { store, config } = await openStore(flags, load)
  const target = await parseWhyTarget(await secretOf(argument), store)
  const known = await readWhy(store, config, target).catch(error => {
    throw error instanceof AdminError && error.kind === 'store' ? unknownBecause(error, config) : error
  })
  const facts = await withLastChange(store, known)
  const verdict = verdictOf(facts, config)
  print(flags, whyDocument(facts, verdict), () =>
    [verdict.sentence, detailsOf(facts)].filter(Boolean).join('\n\n'),
  )
  if (facts.peekError)
    throw new AdminError(
      'store',
      'The rules did not answer, so what they would decide is not known.',
      facts.peekError.nextStep,
    )
}

/** The error of a store that did not answer, with what cannot be known and what the config alone says. */
function unknownBecause(error: AdminError, { rules, limits }: Config): AdminError {
  const all = [...rules, ...[...limits.values()].flat()].filter(({ mode }) => mode === 'enforce')
  const ways = Map.groupBy(all, ({ onStoreFailure }) => onStoreFailure)
  const meanwhile = [...ways].map(
    ([way, rules]) => `${[...new Set(rules.map(({ name }) => name))].join(', ')} (${way})`,
  )
  const lines = [
    unansweredText(error),
    'Until it does, this cannot be known: whether the caller is refused, blocked or has a valid key; its plan and overrides; the live',
    'switches; what is left of its limits; since when it was refused. The gateway may still reach Redis: see /_sluice/health.',
    ...(meanwhile.length > 0
      ? [`Without Redis, each rule follows its onStoreFailure: ${meanwhile.join('; ')}.`]
      : []),
  ]
  return new AdminError('store', lines.join('\n'), error.nextStep)
}
