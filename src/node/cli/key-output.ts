/** How keys are printed. The secret of a key is printed once, when the key is made. */
import type { CreatedKey, KeyInfo } from '../../ops/keys.ts'
import { table, time, timeAhead } from './output.ts'

/** The key alone on standard output, so that it can be piped into a secret store. */
export function printCreatedKey(
  { key, id, consumer, plan, expiresAt }: CreatedKey,
  plans: readonly string[],
): void {
  const until = expiresAt ? `, valid until ${time(expiresAt)} UTC` : ''
  const on = plan ? `plan '${plan}'` : `the consumer's plan (default: '${plans[0]}')`
  console.error(
    `Created a key for consumer '${consumer}' on ${on}${until}. It cannot be shown again. To revoke it: npx sluicegate keys revoke ${id}`,
  )
  console.log(key)
}

export function keyTable(keys: readonly KeyInfo[]): string {
  const rows = keys.map(({ id, kind, plan, label, createdAt, expiresAt, hint, replacedBy }) => [
    ...[id, kind, plan ?? "(consumer's)", label ?? '', time(createdAt)],
    (expiresAt ? timeAhead(expiresAt) : 'never') + (replacedBy ? `, replaced by ${replacedBy}` : ''),
    hint ? `…${hint}` : '',
  ])
  return table(['KEY', 'KIND', 'PLAN', 'LABEL', 'CREATED (UTC)', 'EXPIRES', 'HINT'], rows)
}
