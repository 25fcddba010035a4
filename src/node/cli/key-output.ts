/** How keys are printed. The secret of a key is printed once, when the key is made. */
import type { CreatedKey, KeyInfo, KeyStats } from '../../ops/keys.ts'
import { time, timeAhead } from '../../ops/times.ts'
import { table } from './output.ts'

/** The key alone on standard output, so that it can be piped into a secret store. @param plans of the config, if it is known */
export function printCreatedKey(
  { key, id, consumer, mode, plan, expiresAt, signedBy }: CreatedKey,
  plans: readonly string[] = [],
): void {
  const until = expiresAt ? `, valid until ${time(expiresAt)} UTC` : ''
  const first = plans[0] === undefined ? '' : ` (default: '${plans[0]}')`
  const on = plan ? `plan '${plan}'` : `the consumer's plan${first}`
  console.error(
    `Created a ${signedBy ? 'signed ' : ''}${mode === 'test' ? 'test ' : ''}key for consumer '${consumer}' on ${on}${until}. It cannot be shown again. To revoke it: npx sluicegate keys revoke ${id}`,
  )
  console.log(key)
}

export function keyTable(keys: readonly KeyInfo[]): string {
  const rows = keys.map(
    ({ id, kind, mode, plan, label, createdAt, expiresAt, hint, replacedBy, signedBy }) => [
      ...[
        id,
        signedBy ? `${kind}, signed by ${signedBy}` : kind,
        mode,
        plan ?? "(consumer's)",
        label ?? '',
        time(createdAt),
      ],
      (expiresAt ? timeAhead(expiresAt) : 'never') + (replacedBy ? `, replaced by ${replacedBy}` : ''),
      hint ? `…${hint}` : '',
    ],
  )
  return table(['KEY', 'KIND', 'MODE', 'PLAN', 'LABEL', 'CREATED (UTC)', 'EXPIRES', 'HINT'], rows)
}

/** How many keys that are not signed are listed. */
const MAX_LISTED = 20

export function keyStatsText({ signed, unsigned, allSignedAt }: KeyStats): string {
  const counts = Object.entries(signed).sort(([a], [b]) => (a < b ? -1 : 1))
  const rows = [...counts.map(([id, count]) => [`signed by ${id}`, count]), ['not signed', unsigned.length]]
  const lasting = unsigned.filter(({ expiresAt }) => !expiresAt).map(({ id }) => id)
  const listed = [...lasting.slice(0, MAX_LISTED), ...(lasting.length > MAX_LISTED ? ['…'] : [])]
  const advice =
    unsigned.length === 0
      ? "signature: 'require' refuses none of them."
      : allSignedAt
        ? `The last key without a signature expires at ${timeAhead(allSignedAt, ' UTC')}: from then on, signature: 'require' refuses none of the others.`
        : `signature: 'require' would refuse the keys that are not signed. These never expire, so rotate them: ${listed.join(', ')}`
  return `${table(
    ['API KEYS', 'COUNT'],
    rows.map(row => row.map(String)),
  )}\n${advice}`
}
