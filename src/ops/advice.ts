/** What messages add for people at the command line: what to do next, and similar names. The HTTP API has none of this, so a Worker does not carry it. */
import { didYouMean } from '../config/check/did-you-mean.ts'
import { AdminError } from './admin-error.ts'

/** The most consumers in a message. */
const MOST_NAMES = 10

export const ADVICE = {
  /** Of a key or a token that the store does not have. After a sentence, as the next two. */
  notFound: {
    key: ' If it belongs to another environment, use --env <name>. To list all keys: npx sluicegate keys list',
    token: ' If it belongs to another environment, use --env <name>.',
  },

  /** Of a consumer that the store does not have. @param names of some others */
  otherConsumers(consumer: string, names: readonly string[]): string {
    const list = names.length > MOST_NAMES ? [...names.slice(0, MOST_NAMES), '…'] : names
    return didYouMean(consumer, names) + (list.length > 0 ? ` Consumers: ${list.join(', ')}.` : '')
  },

  createKey: ' Create one with npx sluicegate keys create.',

  lostKey: (id: string) =>
    ifLost(
      `Key '${id}' may have been created, but it is not shown. If npx sluicegate keys list shows its id, revoke it: npx sluicegate keys revoke ${id}`,
    ),

  lostRotation: (id: string, newId: string) =>
    ifLost(
      `Key '${id}' may have been replaced by '${newId}', which is not shown. If npx sluicegate keys list shows that id, revoke it (npx sluicegate keys revoke ${newId}) and keep the old key: npx sluicegate keys expire ${id} never`,
    ),

  lostToken: (id: string) =>
    ifLost(
      `Token '${id}' may have been created, but it is not shown. If npx sluicegate tokens list shows its id, revoke it: npx sluicegate tokens revoke ${id}`,
    ),

  /** How to make the record of a consumer shorter. @param stale how many overrides have no effect */
  longRecord: (consumer: string, stale = 0) =>
    `Remove overrides: npx sluicegate consumers override ${consumer} <rule> --remove. For other numbers in many rules, use a plan.${
      stale > 0
        ? `\nOr repeat the command with --remove-stale: it removes the ${stale} that have no effect with this config, even if another deployment uses them.`
        : ''
    }`,
}

export type Advice = typeof ADVICE

/** Adds what to do next to an error after which a change may have been made. */
function ifLost(nextStep: string) {
  return (error: unknown): never => {
    const mayBeDone =
      error instanceof AdminError && error.kind === 'store' && error.failure?.fate !== 'not-sent'
    if (!mayBeDone) throw error
    throw new AdminError('store', error.message, [nextStep, error.nextStep].filter(Boolean).join('\n'))
  }
}
