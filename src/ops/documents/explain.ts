/** What `npx sluicegate explain --json` prints: each number under a name that says its unit. */
import type { CommandCounts, DecisionCost } from '../decision-cost.ts'
import type { Explanation, RuleExplanation } from '../explain.ts'
import type { SettlementExplanation } from '../explain-settlement.ts'

export function explainDocument(explanation: Explanation) {
  const { method, url, route, accept, caller, refusal, hints, isPreflight, trafficClass, rules, cost } =
    explanation
  const { planFrom, ...who } = caller
  return {
    method,
    url,
    route: route ?? null,
    accept,
    caller: { ...who, ...(planFrom && { plan_from: planFrom }) },
    refusal: refusal ?? null,
    preflight: isPreflight,
    ...(trafficClass && { traffic_class: { name: trafficClass.name, shed_by: trafficClass.shedBy } }),
    rules: rules.map(ruleDocument),
    store: costDocument(cost),
    hints,
  }
}

function ruleDocument(rule: RuleExplanation) {
  if (!rule.applies) return rule
  const { period, countsInFlight, calendar, settlement, ...others } = rule
  return {
    ...others,
    ...(settlement && { settlement: settlementDocument(settlement) }),
    ...(countsInFlight
      ? { ttl_seconds: period / 1e6 }
      : calendar
        ? { calendar_period: calendar.period, time_zone: calendar.timeZone }
        : { period_seconds: period / 1e6 }),
  }
}

const settlementDocument = ({ estimate, actual, onUnsettled, ttlMs }: SettlementExplanation) => ({
  estimate,
  actual,
  on_unsettled: onUnsettled,
  ttl_seconds: ttlMs / 1e3,
})

function costDocument({ httpRequests, calls, admitted, refused, ended, settled, switchRead }: DecisionCost) {
  return {
    http_requests: httpRequests,
    script_calls: calls,
    admitted: admitted ? countsDocument(admitted) : null,
    refused: countsDocument(refused),
    ...(ended && { ended: countsDocument(ended) }),
    ...(settled && { settled: countsDocument(settled) }),
    ...(switchRead && { switch_read: countsDocument(switchRead) }),
  }
}

function countsDocument({ commands, least, most, dollarsPerMillion: [low, high] }: CommandCounts) {
  return {
    commands: commands.map(({ command, least, most }) => ({ command, least_count: least, most_count: most })),
    least_commands: least,
    most_commands: most,
    least_usd_per_million: low,
    most_usd_per_million: high,
  }
}
