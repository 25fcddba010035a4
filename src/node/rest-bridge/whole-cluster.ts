/** Commands about all data or all scripts. In a cluster they run on every master. */
import type { Command, Reply } from './redis-server.ts'

/** Merges the replies of all masters into one. */
type Merge = (replies: Reply[]) => Reply

const same: Merge = replies => replies[0]!
const sum: Merge = replies => (replies as number[]).reduce((a, b) => a + b, 0)
const concatenated: Merge = replies => replies.flat() as Reply[]
const onAll: Merge = replies => {
  const [first = [], ...others] = replies as number[][]
  return first.map((known, i) => (others.every(other => other[i] === known) ? known : 0))
}
const oneOf: Merge = replies => {
  const found = replies.filter(reply => reply !== null)
  return found[Math.floor(Math.random() * found.length)] ?? null
}

const MERGES = new Map<string, Merge>([
  ['DBSIZE', sum],
  ['KEYS', concatenated],
  ['RANDOMKEY', oneOf],
  ['FLUSHALL', same],
  ['FLUSHDB', same],
  ['SCRIPT LOAD', same],
  ['SCRIPT EXISTS', onAll],
  ['SCRIPT FLUSH', same],
  ['FUNCTION LOAD', same],
  ['FUNCTION DELETE', same],
  ['FUNCTION FLUSH', same],
  ['FUNCTION RESTORE', same],
])

/** How the replies of all masters become one; undefined for a command that one node answers. */
export function mergeOf(command: Command): Merge | undefined {
  const [name, subcommand] = command.slice(0, 2).map(word => String(word).toUpperCase())
  return MERGES.get(name!) ?? MERGES.get(`${name} ${subcommand}`)
}

/** SCAN is not available on a cluster: a cursor belongs to one node, and does not name the node. */
export function isScan(command: Command): boolean {
  return /^scan$/i.test(String(command[0]))
}
