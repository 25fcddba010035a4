/** Measures what a Redis Cluster costs beyond one Redis: HTTP requests and commands of a decision that counts in two slots. */
import { ALL_ALGORITHMS } from '../../src/algorithms/all.ts'
import { compileGatewayRule } from '../../src/config/compile-rule.ts'
import { toDecision } from '../../src/limiter/decision.ts'
import { startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { gatewayRuleSet } from '../../src/script/compiled.ts'
import { addressStateKey, consumerStateKey } from '../../src/store/keys.ts'
import type { Store } from '../../src/store/store.ts'
import { upstashStore } from '../../src/store/upstash.ts'
import { bound } from '../../test/support/bound.ts'
import { TestCluster } from '../../test/support/cluster.ts'
import { evaluate } from '../../test/support/evaluate.ts'
import { cell, counted } from '../figures.ts'
import type { Findings, Row } from '../report.ts'
import { sixRules } from '../rules.ts'
import { newIdentities } from '../test-bed.ts'

const DECISIONS = 200
const TOKEN = 'token-of-the-benchmark'

export async function cluster(): Promise<Findings> {
  const nodes = await TestCluster.start()
  const bridge = await startBridge({ redisUrl: nodes.url, token: TOKEN, port: 0 })
  try {
    const store = upstashStore({
      url: bridge.url,
      token: TOKEN,
      deadlineMs: 5000,
      keyLocking: false,
      cluster: true,
    })
    return {
      rows: [
        await rowFor(nodes, store, 'all allowed', 'admits all', () => newIdentities(1)[0]!),
        await rowFor(
          nodes,
          store,
          'one consumer over its limit, from many addresses',
          'refuses all',
          consumerOf(),
        ),
      ],
      notes: [
        'Cluster: three nodes behind one bridge. Each decision counts the six limits for the consumer in one slot and for the address in ' +
          'another. While a slot is likely to refuse again, all slots are asked first, which spends nothing, so that no second HTTP request ' +
          'has to give units back. Each slot runs its own script, so an allowed decision needs three commands more than on one Redis.',
      ],
    }
  } finally {
    await bridge.close()
    await nodes.end()
  }
}

/** The same consumer each time, from another address. */
function consumerOf() {
  const [{ consumer }] = newIdentities(1) as [{ consumer: string; address: string }]
  return () => ({ consumer, address: newIdentities(1)[0]!.address })
}

async function rowFor(
  nodes: TestCluster,
  store: Store,
  what: string,
  scale: 'admits all' | 'refuses all',
  next: () => { consumer: string; address: string },
): Promise<Row> {
  const rules = sixRules(scale, 'fixed-window').map(
    rule => compileGatewayRule(rule, ['free'], ALL_ALGORITHMS)[0]!,
  )
  const ruleSet = gatewayRuleSet({ rules, plans: [] })
  let requests = 0
  const counting: Store = {
    ...store,
    run: async (calls, listener) => {
      requests += 1
      return await store.run(calls, listener)
    },
  }
  const decide = async () => {
    const { consumer, address } = next()
    const all = rules.map(rule =>
      bound(rule, rule.by[0] === 'consumer' ? consumerStateKey(consumer) : addressStateKey(address)),
    )
    const outcome = await evaluate(counting, { ruleSet, rules: all })
    if (outcome.status === 'degraded') throw new Error(`The store made no decision: ${outcome.cause}`)
    return toDecision(outcome).kind
  }
  for (let i = 0; i < 3; i++) await decide()
  requests = 0
  await Promise.all(nodes.nodes.map(node => node.ask('CONFIG', 'RESETSTAT')))
  for (let i = 0; i < DECISIONS; i++) await decide()
  const commands = (await Promise.all(nodes.nodes.map(node => node.ask('INFO', 'commandstats')))).reduce(
    (sum: number, info) =>
      sum +
      [...String(info).matchAll(/^cmdstat_(\w+):calls=(\d+)/gm)]
        .filter(([, name]) => ['evalsha', 'eval', 'time', 'mget', 'setex'].includes(name!))
        .reduce((calls, [, , count]) => calls + Number(count), 0),
    0,
  )
  return {
    what: `HTTP requests and billed commands per decision, six fixed-window, Redis Cluster, ${what}`,
    sluice: cell`${counted(requests / DECISIONS, { digits: 2 })} and ${counted(commands / DECISIONS, { digits: 2 })}`,
    comparison: `one Redis: 1 and ${scale === 'admits all' ? 5 : 3}`,
  }
}
