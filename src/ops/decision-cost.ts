/**
 * Computes what one decision costs in the store: HTTP requests, and commands as Upstash bills them, including those inside the
 * script. src/script/decide.ts lists the commands. test/ops compares the numbers with those that a Redis counts.
 */
import { LOG_PLAIN } from '../algorithms/sliding-log.ts'
import { appliesToPlan, countsInFlight, type Rule } from '../config/compile-rule.ts'
import { splitBySlot } from '../limiter/cluster.ts'
import type { BoundRule, Evaluation } from '../script/evaluation.ts'
import { dollarsPerMillion } from './prices.ts'

export interface DecisionCost {
  /**
   * For an admitted request of a caller that the isolate knows; for an opaque key, of one that it does not know. On a cluster, a refused
   * request takes one more if a slot gives back units.
   */
  httpRequests: number
  /** Script calls, one for each slot of a cluster. */
  calls: number
  /** Absent: the store refuses the caller, whatever its limits. */
  admitted?: CommandCounts
  /** Without the commands of a second HTTP request on a cluster: those that give units back, or count an unknown key. */
  refused: CommandCounts
  /**
   * The commands that report the end of an admitted request, unless a later decision carries the report. Absent: no rule counts
   * requests in flight.
   */
  ended?: CommandCounts
  /** The commands that settle what an admitted request has reserved, as a call beside later decisions or alone. Absent: it reserves nothing. */
  settled?: CommandCounts
  /**
   * What a decision takes in addition if the isolate has not read the live switches within the last second: a GET in the same HTTP
   * request. Absent: the store is not called.
   */
  switchRead?: CommandCounts
}

export interface CommandCounts {
  commands: readonly CommandCount[]
  least: number
  most: number
  /** Price of a million such requests in USD, with the least and the most commands. */
  dollarsPerMillion: readonly [least: number, most: number]
}

export interface CommandCount {
  command: string
  least: number
  most: number
}

/** Why the store refuses a caller, whatever its limits: the consumer is blocked, or the store has no record of the key. */
export type StoreRefusal = 'blocked' | 'unknown-key'

/**
 * @param plan the caller's plan, as the store would find it. Undefined: the caller is anonymous.
 * @param refusal undefined: only limits can refuse the request
 */
export function decisionCost(
  evaluation: Evaluation,
  plan: string | undefined,
  isCluster: boolean,
  refusal?: StoreRefusal,
): DecisionCost {
  const { rules, subject } = evaluation
  if (rules.length === 0 && !subject) {
    return { httpRequests: 0, calls: 0, admitted: countsOf([]), refused: countsOf([]) }
  }
  // On a cluster, the owner of an opaque key is looked up first, because its record may be in another slot.
  const isLookedUp = isCluster && subject?.kind === 'pointer'
  // A caller that the store refuses is refused by the slot with its records, before the others are asked.
  const slots = (isCluster ? splitBySlot(evaluation) : [evaluation]).filter(slot => !refusal || slot.subject)
  const calls = slots.length
  const applying = rules.filter(({ rule }) => appliesToPlan(rule, plan))
  // The script does not check the limits of a caller that it refuses.
  const onRequest = refusal ? [] : applying.filter(({ rule }) => rule.on === 'request')
  const onGuess = applying.filter(({ rule }) => rule.on === 'auth-failure')
  // On a cluster, an unknown key is counted by a second HTTP request.
  const spent = refusal === 'unknown-key' && !isCluster ? onGuess : onRequest
  const longLogs = [...onRequest, ...onGuess].filter(({ rule }) => hasLongLog(rule)).length
  const held = spent.filter(({ rule, role }) => role === 'spend' && countsInFlight(rule)).length
  const reserved = keysOfReserved(spent)
  const released = keysOfReleased(evaluation)
  const inSet = [...reserved].filter(key => released.has(key)).length

  const read = [
    exactly('EVALSHA', calls),
    exactly('TIME', calls),
    exactly('MGET', calls),
    exactly('GET', subject?.kind === 'pointer' ? 1 : 0),
    // Reads a chunk of the log. There are further reads only for a large cost, or if many entries have expired since the last request.
    between('HGET', 0, longLogs),
    between('ZRANGEBYSCORE', released.size, MAX_PAGES * released.size),
  ]
  const written = writesOf(spent)
  const endedIn = isCluster ? held : 1
  const ended = [
    exactly('EVALSHA', endedIn),
    exactly('TIME', endedIn),
    exactly('MGET', endedIn),
    exactly('SETEX', held),
  ]
  const settled = [
    ...['EVALSHA', 'TIME', 'MGET'].map(command => exactly(command, 1)),
    ...['ZMSCORE', 'ZREM'].map(command => between(command, inSet, reserved.size)),
    // If a request has cost what it has reserved in the set, the state is not written.
    between('SETEX', 0, reserved.size),
    between('ZREMRANGEBYSCORE', 0, reserved.size - inSet),
  ]
  // The slot of a caller that is new to the isolate decides first, in an HTTP request of its own.
  const httpRequests = isLookedUp ? (calls > 1 ? 3 : 2) : 1
  const trips = { httpRequests, calls, switchRead: countsOf([exactly('GET', 1)]) }
  if (refusal) return { ...trips, refused: countsOf([...read, ...written]) }
  return {
    ...trips,
    admitted: countsOf([...read, ...written, ...reservationsOf(reserved.size, inSet, released.size)]),
    refused: countsOf(read),
    ...(held > 0 && { ended: countsOf(ended) }),
    ...(reserved.size > 0 && { settled: countsOf(settled) }),
  }
}

/** The most pages of reservations that have ended in one decision (src/script/reservation-text.ts). */
const MAX_PAGES = 7

/** The commands that write the states of rules which spend. */
function writesOf(rules: readonly BoundRule[]): CommandCount[] {
  const spent = rules.filter(({ role }) => role === 'spend')
  const held = spent.filter(({ rule }) => countsInFlight(rule)).length
  const states = new Set(spent.filter(({ rule }) => !countsInFlight(rule)).map(({ key }) => key)).size
  const logs = spent.filter(({ rule, sideKey }) => sideKey && !countsInFlight(rule)).length
  const longLogs = spent.filter(({ rule }) => hasLongLog(rule)).length
  return [
    exactly('SETEX', states + held + logs),
    // Moves chunks of the log, usually once in 32 requests.
    { command: 'HDEL or UNLINK, HSET + EXPIRE', least: 0, most: 3 * longLogs },
  ]
}

/** The state keys of the identities of which a request reserves units. */
const keysOfReserved = (rules: readonly BoundRule[]) =>
  new Set(rules.filter(({ rule, role }) => role === 'spend' && rule.settlement).map(({ key }) => key))

/** The state keys of the identities whose reservations are given back at their end. */
function keysOfReleased({ rules, ruleSet }: Evaluation): ReadonlySet<string> {
  const released = ruleSet.entries.filter(({ settlement }) => settlement?.onUnsettled === 'release')
  const identities = new Set(released.map(({ identity }) => identity))
  const found = rules.filter(({ rule }) => identities.has(ruleSet.entries[ruleSet.entryOf(rule)]!.identity))
  return new Set(found.map(({ key }) => key))
}

/**
 * The commands that reserve. If there is room, reservations are in the state, unless their units are given back at their end.
 * @param inSet of how many identities they are always in the set
 */
const reservationsOf = (reserved: number, inSet: number, released: number) => [
  between('ZREM', 0, released),
  ...['ZADD', 'PEXPIRE'].map(command => between(command, inSet, reserved)),
]

/** Whether the log can have chunks. */
const hasLongLog = ({ counting, quota }: Rule) => counting.state === 'log' && quota.burst > LOG_PLAIN

const between = (command: string, least: number, most: number) => ({ command, least, most })
const exactly = (command: string, count: number) => between(command, count, count)

function countsOf(all: readonly CommandCount[]): CommandCounts {
  const commands = all.filter(({ most }) => most > 0)
  const least = commands.reduce((sum, { least }) => sum + least, 0)
  const most = commands.reduce((sum, { most }) => sum + most, 0)
  return { commands, least, most, dollarsPerMillion: [dollarsPerMillion(least), dollarsPerMillion(most)] }
}
