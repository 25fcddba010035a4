/** What the OpenAPI document says about statistics. */
import type { PartOperations } from '../reply-schemas.ts'
import { REFUSALS } from './shared.ts'

export const statsOperations: PartOperations = {
  operations: {
    'GET stats': ['stats', 'Stats', 'Show what was decided'],
    'GET stats/top': ['topCallers', 'TopCallers', 'Show whom each rule has refused most'],
  },
  schemas: {
    ...REFUSALS,
    Stats: `since: time, unit: (minute|hour|day), rules: RuleStats[], requests: RequestCounts[],
      withoutTrip: {integer}, test: {integer}, lost: integer, calls: CallCounts[],
      callsWithoutTrip: {integer}, lostCalls: integer, critical?: {CriticalCounts}, reservations?: {Reservations}`,
    CriticalCounts: 'within: integer, over: integer',
    RuleStats: `rule, route, plan, mode, allowed: integer, limited: integer, shadowAllowed: integer,
      shadowLimited: integer, agreed: integer, disagreed: integer`,
    RequestCounts: 'outcome, cause, count: integer, route',
    CallCounts: 'outcome, cause, count: integer, limit',
    Reservations: `made: integer, settled: integer, late: integer, unsettled: integer, reserved: number,
      cost: number, debt: number`,
    TopCallers: 'since: time, rules: RefusedCallers[]',
    RefusedCallers: `rule, mode: (enforce|shadow), sum: integer, spread: (one caller|many callers|not known),
      callers: RefusedCaller[]`,
    RefusedCaller: 'name, ...Refusals',
  },
}
