/** Reads what requests have reserved of an identity and have not settled yet (src/script/settle.ts). */
import { reservedKey } from '../store/keys.ts'
import type { AdminStore } from './admin-store.ts'

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
  const which = [`(${Math.floor(at / 1000)}`, '+inf', 'BYSCORE', 'LIMIT', 0, MAX_READ + 1]
  const replies = await store.runEach<readonly string[]>(
    stateKeys.map(key => ['ZRANGE', store.at(reservedKey(key)), ...which]),
  )
  return new Map(stateKeys.map((key, i) => [key, reservationsOf(replies[i]!)]))
}

/** @param members `<id> <spent_at> <family>=<units> …` */
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
