/** What `npx sluicegate explain --json` prints: each number under a name that says its unit. */
import type { CommandCounts, DecisionCost } from '../../ops/decision-cost.ts'
import type { Explanation, RuleExplanation } from '../../ops/explain.ts'

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
  const { period, countsInFlight, calendar, ...others } = rule
  return {
    ...others,
    ...(countsInFlight
      ? { ttl_seconds: period / 1e6 }
      : calendar
        ? { calendar_period: calendar.period, time_zone: calendar.timeZone }
        : { period_seconds: period / 1e6 }),
  }
}

function costDocument({ httpRequests, calls, admitted, refused, ended, switchRead }: DecisionCost) {
  return {
    http_requests: httpRequests,
    script_calls: calls,
    admitted: admitted ? countsDocument(admitted) : null,
    refused: countsDocument(refused),
    ...(ended && { ended: countsDocument(ended) }),
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
