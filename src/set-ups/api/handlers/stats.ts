/** What was decided, and about whom. */
import { statsDocument, topCallersDocument } from '../../../ops/documents/stats.ts'
import { MINUTE_MS } from '../../../ops/record-times.ts'
import { filterByRule, listRuleNames, MAX_LOOK_BACK_MS, readStatsBy } from '../../../ops/stats.ts'
import { MAX_CALLERS_BACK_MS, readTopCallersOf } from '../../../ops/top-callers.ts'
import { object, oneOf, text } from '../json-schema.ts'
import { durationOf } from '../parse-input.ts'
import { adminRoute } from '../route.ts'

const SCOPES = ['stats:read'] as const

const sinceQuery = { 'since?': text(20), 'rule?': text(127) }
const statsQuery = object(sinceQuery)
const topQuery = object({ ...sinceQuery, 'shadow?': oneOf('true', 'false') })

export const statsRoutes = [
  adminRoute({
    method: 'GET',
    path: 'stats',
    scopes: SCOPES,
    query: statsQuery,
    async run({ store, query }, { config, now, sumStats }) {
      const backMs = durationOf('?since', query.since ?? '24h', MINUTE_MS, MAX_LOOK_BACK_MS)
      const until = now()
      const all = await readStatsBy(sumStats, store, new Date(until - backMs), new Date(until))
      const { rule } = query
      return statsDocument(rule === undefined ? all : filterByRule(all, rule, listRuleNames(config)))
    },
  }),
  adminRoute({
    method: 'GET',
    path: 'stats/top',
    scopes: SCOPES,
    query: topQuery,
    async run({ store, query }, { config, now }) {
      const backMs = durationOf('?since', query.since ?? '24h', MINUTE_MS, MAX_CALLERS_BACK_MS)
      const until = now()
      const callers = await readTopCallersOf(store, config, new Date(until - backMs), {
        mode: query.shadow === 'true' ? 'shadow' : 'enforce',
        rule: query.rule,
        now: new Date(until),
      })
      return topCallersDocument(callers)
    },
  }),
]
