/** Reads the reservations that Redis has, as bytes: those in the state of an identity (src/script/reserved-records.ts), and those in its set. */
import { reservedKey } from '../../src/store/keys.ts'

export interface StoredReservation {
  /** ms */
  end: number
  /** For each rule. */
  units: number[]
  isInState: boolean
}

const LAST_MS = 2 ** 42 - 1

/** REST has no bytes. */
const HEX = `return (string.gsub(redis.call('GET', KEYS[1]) or '', '.', function(letter)
return string.format('%02x', string.byte(letter))
end))`

/** @param run sends a command */
export async function reservationsOf(
  run: (...command: readonly [string, ...string[]]) => Promise<unknown>,
  stateKey: string,
): Promise<StoredReservation[]> {
  const state = Buffer.from(String(await run('EVAL', HEX, '1', stateKey)), 'hex')
  const listed = (await run('ZRANGE', reservedKey(stateKey), '0', '-1', 'WITHSCORES')) as unknown[]
  const [members, ends] = [0, 1].map(part => listed.filter((_, i) => i % 2 === part).map(String))
  const inSet = members!.map((member, i) => ({
    end: Number(ends![i]),
    units: [...member.matchAll(/=(\d+)/g)].map(([, units]) => Number(units)),
    isInState: false,
  }))
  return [...inState(state), ...inSet]
}

function inState(state: Buffer): StoredReservation[] {
  const found: StoredReservation[] = []
  for (let at = 0; at < state.length; at += 14) {
    const first = state[at]!
    if (first < 128 || first === 224) continue
    const units = state.readUInt32BE(at + 10)
    if (first < 160) {
      const left = (state.readUInt32BE(at + 3) + 1) * 1024 + (first - 128) * 32 + (state[at + 14]! - 160)
      found.push({ end: LAST_MS - left, units: [], isInState: true })
    } else found.at(-1)!.units.push(units)
  }
  return found
}
