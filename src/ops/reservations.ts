/** Reads what requests have reserved of an identity and have not settled yet (src/script/settle.ts). */
import { readTail } from '../script/reserved-records.ts'
import { evalCommand } from '../store/admin-connection.ts'
import { reservedKey } from '../store/keys.ts'
import type { AdminStore } from './admin-store-shape.ts'

/** What requests have reserved of one rule. */
export interface Reserved {
  units: number
  requests: number
  /** There are too many reservations to read them all, so there may be more of this rule. */
  isPartial: boolean
}

/** The reservations of one identity. */
export type Reservations = (family: string) => Reserved

/** How many reservations of an identity are read, about 50 B each. */
const MAX_READ = 1000

/** Reads those in the state and those in the set, whose end is after ARGV[1] (ms), and at most ARGV[2] of the set. */
const READ = `
local state = redis.call('MGET', KEYS[1])[1] or ''
local found = redis.call('ZRANGE', KEYS[2], '(' .. ARGV[1], '+inf', 'BYSCORE', 'LIMIT', 0, ARGV[2])
${readTail('state', 'ARGV[1] + 0')}return found
`

/**
 * @param stateKeys of the identities
 * @param at the time of the store (µs). Reservations that have ended until then are left out
 * @returns by state key
 */
export async function readReservations(
  store: AdminStore,
  stateKeys: readonly string[],
  at: number,
): Promise<ReadonlyMap<string, Reservations>> {
  const which = [Math.floor(at / 1000), MAX_READ + 1]
  const replies = await store.runEach<readonly string[]>(
    stateKeys.map(key => evalCommand(READ, [key, reservedKey(key)].map(store.at), which)),
  )
  return new Map(stateKeys.map((key, i) => [key, reservationsOf(replies[i]!)]))
}

/** @param members `<id> <spent_at> <family>=<units> …`, also with `<family>~<record>` */
function reservationsOf(members: readonly string[]): Reservations {
  const amounts = members.slice(0, MAX_READ).flatMap(member => member.split(' ').slice(2))
  return family => {
    const units = amounts.flatMap(amount => {
      const [name, number] = amount.split('=')
      return name === family ? [Number(number)] : []
    })
    return {
      units: units.reduce((sum, number) => sum + number, 0),
      requests: units.length,
      isPartial: members.length > MAX_READ,
    }
  }
}
