/** What to do next, in the words of the command line. The HTTP API has none of them, so a Worker does not carry them. */
import { AdminError } from './admin-error.ts'

export const ADVICE = {
  /** After a sentence, as the next two. */
  environment: ' If it belongs to another environment, use --env <name>.',

  listKeys: ' To list all keys: npx sluicegate keys list',

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
  return (error: AdminError): AdminError =>
    error.kind === 'store'
      ? new AdminError('store', error.message, [nextStep, error.nextStep].filter(Boolean).join('\n'))
      : error
}
