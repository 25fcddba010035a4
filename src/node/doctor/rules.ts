/** Whether algorithms and the scripts of the user's config work in this store: their replies are compared with known ones and with the model's. */
import { isDeepStrictEqual } from 'node:util'
import type { Rule } from '../../config/compile.ts'
import { GatewayError } from '../../errors.ts'
import { bindRule } from '../../limiter/bind.ts'
import { refundOf } from '../../limiter/cluster.ts'
import { prepareRefund, prepareReset, prepareSettle, runCall } from '../../limiter/prepared-call.ts'
import { limitRuleSet } from '../../script/compiled.ts'
import { ScriptModel } from '../../script/model.ts'
import { limitStateKey } from '../../store/keys.ts'
import type { Store } from '../../store/store.ts'
import { type Finding, fault, findings, ok } from './checks.ts'
import { type Decision, decide, decisionsUnder } from './decisions.ts'
import type { Bed } from './examined-store.ts'
import { VECTORS } from './vectors.ts'

/** µs. A multiple of every period in the tables. */
const START = 1_700_000_000 * 1e6
const OTHER_STORE =
  'Use Redis 6.2 or newer, Valkey, an Upstash database or the bridge. If it is one of them, report this: it is a bug.'

export async function checkAlgorithms({ decisions }: Bed): Promise<Finding> {
  const areRight = async ({ rule, rows }: (typeof VECTORS)[number]) => {
    const key = limitStateKey('doctor', [['algorithm', rule.name]])
    const ruleSet = limitRuleSet([rule])
    for (const { at, cost, result } of rows) {
      const now = START + at
      const outcome = await decide(decisions, { ruleSet, rules: [bindRule(rule, key, cost, now / 1e3)], now })
      const { rule: _rule, mode: _mode, ...got } = outcome.verdicts[0]!
      if (!isDeepStrictEqual(got, result)) return false
    }
    return true
  }
  const right = await Promise.all(VECTORS.map(areRight))
  const wrong = VECTORS.filter((_, i) => !right[i]).map(({ rule }) => rule.name)
  return wrong.length > 0
    ? fault`The store counts wrong under ${wrong.join(', ')}. → ${OTHER_STORE}`
    : ok`All ${VECTORS.length} algorithms count right, in ${VECTORS.flatMap(({ rows }) => rows).length} decisions with known results.`
}

export async function checkRules({ decisions, config, writeRecords }: Bed): Promise<Finding> {
  const all = decisionsUnder(config, 'caller')
  await writeRecords(all)
  const wrong: string[] = []
  for (const decision of all)
    await compareWithModel(decisions, decision).catch(error => {
      if (!(error instanceof Difference)) throw error
      wrong.push(`${decision.title} (${error.message})`)
    })
  const ruleSets = all.map(({ evaluation: { ruleSet } }) => ruleSet)
  const scripts = ruleSets.flatMap(({ decide, refund, settle }) => [decide, refund, settle ?? []].flat())
  const bytes = Math.max(0, ...scripts.map(({ plain }) => plain.source.length))
  const found = findings({ scripts: scripts.length, largest_script_bytes: bytes })
  return wrong.length > 0
    ? found.fault`Scripts of your config do not work here: ${wrong.join(', ')}. → ${OTHER_STORE}`
    : found.ok`The ${scripts.length} scripts of your config work (the largest: ${Math.ceil(bytes / 1e3)} kB).`
}

/** A script has failed, or has another reply than the model. */
class Difference extends Error {}

/** @throws Difference */
async function compareWithModel(decisions: Store, { evaluation, records }: Decision): Promise<void> {
  const model = new ScriptModel()
  for (const [key, text] of records) model.setRecord(key, text)
  const same = async <R extends { at: number }>(
    step: string,
    reply: Promise<R>,
    expected: (now: number) => R,
  ) => {
    const got = await reply.catch(error => {
      throw error instanceof GatewayError
        ? new Difference(`${step}: ${error.message.replace(/\.$/, '')}`)
        : error
    })
    // Slots of a cluster decide at different times, so there only errors count.
    if (!decisions.isCluster && !isDeepStrictEqual(got, expected(got.at))) throw new Difference(step)
    return got
  }
  const { ruleSet, rules, reservationId: id } = evaluation
  const decided = await same('decide', decide(decisions, evaluation), now =>
    model.decide({ ...evaluation, now }),
  )
  await same('peek', decide(decisions, evaluation, 'peek'), now =>
    model.decide({ ...evaluation, now }, 'peek'),
  )
  const [refund] = refundOf(evaluation, decided)
  // On a cluster, each slot has calls of its own.
  if (decisions.isCluster || !refund) return
  if (id) {
    const reservedBy = ({ tag }: Rule) => decided.verdicts.find(({ rule }) => rule.tag === tag)?.reserved ?? 0
    const amounts = rules.map(({ rule }) => ({ reserved: reservedBy(rule), actual: reservedBy(rule) + 1 }))
    const settlement = { ...refund, rules, requests: [{ id, spentAt: decided.at, amounts }] }
    const settled = runCall(decisions, prepareSettle({ ...settlement, ruleSet }))
    await same('settle', settled, now => model.settle({ ...settlement, now }))
  }
  await same('refund', runCall(decisions, prepareRefund(refund)), now => model.refund({ ...refund, now }))
  await same('reset', runCall(decisions, prepareReset({ rules })), now => model.reset({ rules, now }))
}
