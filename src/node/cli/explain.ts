/** `npx sluicegate explain GET /reports/7`: how the gateway would handle a request, and what that costs. */
import { Command, Option } from 'commander'
import type { Config } from '../../config/compile.ts'
import { REQUESTS } from '../../config/compile-rule.ts'
import { formatDuration } from '../../config/duration.ts'
import { CF_PARTS, type CfPart } from '../../config/identity-parts.ts'
import { AdminError } from '../../ops/admin-error.ts'
import type { CommandCounts, DecisionCost } from '../../ops/decision-cost.ts'
import { explainDocument } from '../../ops/documents/explain.ts'
import { type ApplyingRule, type Explanation, explain, type RuleExplanation } from '../../ops/explain.ts'
import type { SettlementExplanation } from '../../ops/explain-settlement.ts'
import { createLookUp, type LookUp, type PlanSource } from '../../ops/explain-stored.ts'
import { parseMode } from '../../ops/names.ts'
import { time } from '../../ops/times.ts'
import { configOf, ENVIRONMENT_HELP, JSON_HELP, secretOf } from './administration.ts'
import { parseHeader } from './arguments.ts'
import { withExamples } from './help.ts'
import type { ConfigLoader } from './load-config.ts'
import { isStoreSet, openAdminStore } from './open-store.ts'
import { alert, columns, print, table } from './output.ts'
import { wordsOfRoute } from './route-words.ts'

interface Flags extends Partial<Record<CfPart, string>> {
  host?: string
  key?: string
  token?: string
  consumer?: string
  mode?: string
  plan?: string
  address?: string
  header?: [string, string][]
  env?: string
  json?: boolean
}

export function explainCommand(load: ConfigLoader): Command {
  const command = new Command('explain')
    .summary('show how a request would be handled')
    .description(
      'Show how the gateway would handle a request: its route, the rules that count it, and what it sends to the store. Nothing is counted.',
    )
    .argument('<method>', 'method of the request, such as GET')
    .argument('<path>', 'path of the request, such as /reports/7')
    .option('--host <host>', 'host of the request (default: gateway.example)')
    .addOption(
      new Option('--key <key>', 'API key or imported key; - reads it from standard input').conflicts([
        'token',
        'consumer',
      ]),
    )
    .addOption(
      new Option(
        '--token <jwt>',
        'token, which is verified except for its signature; - reads it from standard input',
      ).conflicts(['consumer']),
    )
    .option('--consumer <name>', 'consumer that sends the request; no credential is needed')
    .option('--mode <mode>', 'mode of an imported key or of --consumer: live or test (default: live)')
    .option('--plan <name>', 'plan, instead of the one from the token or the store')
    .option('--address <address>', 'address of the client')
    .option('--header <name: value>', 'header of the request; repeat it for more', parseHeader)
    .option('--env <name>', ENVIRONMENT_HELP)
    .option('--json', JSON_HELP)
    .addHelpText(
      'after',
      '\nIf UPSTASH_REDIS_REST_URL and UPSTASH_REDIS_REST_TOKEN, or REDIS_URL, are set, the plan and the overrides of the\nconsumer are read from that store.',
    )
    .action(run.bind(null, load))
  for (const { part, example } of CF_PARTS) {
    command.option(
      `--${part} <value>`,
      `${CF_NAMES[part]} that Cloudflare reports for the client, such as ${example}`,
    )
  }
  return withExamples(
    command,
    'explain GET /reports/7 --consumer acme',
    'explain POST /reports --address 192.0.2.7',
  )
}

const CF_NAMES: Record<CfPart, string> = { country: 'country', asn: 'AS number' }

async function run(load: ConfigLoader, method: string, path: string, flags: Flags): Promise<void> {
  const { json, env, header: headers, key, token, mode, ...rest } = flags
  const config = await configOf(flags, load)
  const input = {
    method: method.toUpperCase(),
    path,
    ...rest,
    ...(headers && { headers }),
    ...(mode !== undefined && { mode: parseMode(mode) }),
    ...(key !== undefined && { key: await secretOf(key) }),
    ...(token !== undefined && { token: await secretOf(token) }),
  }
  const explanation = await explain(config, input, lookUpFor(config))
  print({ ...(json && { json }) }, explainDocument(explanation), () => describe(explanation, config))
}

/** When the store does not answer, the plan is assumed, as it is without a store. */
function lookUpFor({ environment, keyLocking, cluster, credentials }: Config): LookUp | undefined {
  if (!isStoreSet()) return undefined
  const options = { environment, keyLocking, cluster, keyPrefix: credentials.keyPrefix }
  const opening = openAdminStore({}, options)
  return async credential => {
    try {
      return await createLookUp(await opening)(credential)
    } catch (error) {
      if (!(error instanceof AdminError && error.kind === 'store')) throw error
      console.error(`${error.message} The plan is assumed, and overrides are not shown.`)
      if (error.nextStep) console.error(error.nextStep)
      return undefined
    }
  }
}

function describe(explanation: Explanation, { routes, routeDefaults, cluster }: Config): string {
  const { method, url, route, accept, caller, trafficClass, rules, cost, hints, hooks } = explanation
  const { hostname, pathname, search } = new URL(url)
  const settings = routes.find(({ name }) => name === route?.name) ?? routeDefaults
  const at = [route ? `route ${route.name}` : 'no route', ...wordsOfRoute(settings, routeDefaults)].join(', ')
  const lines = [
    `${method} ${hostname}${pathname}${search}`,
    `  Route    ${at}; accepts ${accept.join(', ') || 'no credential, so everyone gets a 401: this path can mean several routes, which share no credential. Use the plain path'}`,
    `  Caller   ${describeCaller(caller)}`,
    ...(trafficClass ? [`  Class    ${classText(trafficClass)}`] : []),
    `  Access   ${accessOf(explanation)}`,
    ...(hooks ? [`  Hooks    ${hooks.join(', ')}: not run by this command, and may change the result`] : []),
    '',
    ruleTable(rules),
    '',
    ...settlementLines(rules),
    costOf(cost, cluster),
    ...hints.flatMap(hint => ['', hint]),
  ]
  return lines.join('\n')
}

function accessOf({ isPreflight, refusal, caller }: Explanation): string {
  if (isPreflight) return 'preflight: needs no credential, and nothing is counted'
  if (refusal) return alert(`refused with ${refusal.status}: ${refusal.reason}`)
  return caller.consumer
    ? 'admitted if the store confirms the caller and no rule refuses it'
    : 'admitted if no rule refuses it'
}

function classText({ name, shedBy }: NonNullable<Explanation['trafficClass']>): string {
  return shedBy ? `${name}, which ${shedBy} sheds while the origin is too busy` : name
}

function describeCaller({ method, consumer, mode, address, plan, planFrom }: Explanation['caller']): string {
  const who =
    consumer === undefined
      ? method
      : `${consumer === '?' ? 'owner of the key' : consumer}, by ${method}${mode === 'test' ? ' in test mode' : ''}, plan ${plan} (${PLAN_FROM[planFrom!]})`
  return `${who}; address ${address}`
}

const PLAN_FROM: Record<PlanSource, string> = {
  option: 'from --plan',
  token: 'from the token',
  key: 'from the key in the store',
  keys: "from the consumer's keys in the store, which all have this plan",
  consumer: 'from the consumer in the store',
  default: 'the default: the store has no other',
  assumed: 'assumed: the first in the config',
}

function ruleTable(rules: readonly RuleExplanation[]): string {
  if (rules.length === 0) return 'The config has no rules.'
  const rows = rules.map(rule => {
    const by = rule.by.join(' + ')
    if (!rule.applies) return [rule.name, by, `no: ${rule.because}`, '', '', '']
    const { limit, allows, burst, algorithm, mode, on, key, override } = rule
    const until = override?.until ? ` until ${time(override.until)} UTC` : ''
    const own = override ? `, by an override${until}` : ''
    const numbers = `${allows}${burst === limit ? '' : `, burst ${burst}`}, ${algorithm}${own}`
    return [
      rule.name,
      by,
      numbers,
      on === 'auth-failure' ? `${mode}, on auth-failure` : mode,
      costText(rule),
      key,
    ]
  })
  return table(['RULE', 'BY', 'APPLIES', 'MODE', 'COST', 'COUNTED IN'], rows)
}

/** `1`, `200 tokens`, `tokens of the body` */
function costText({ unit, cost, settlement }: ApplyingRule): string {
  const estimate = settlement?.estimate ?? cost
  if (estimate === 'llm') return `${unit} of the body`
  if (estimate === 'hook') return `${unit} of hooks.amounts`
  return unit === REQUESTS ? String(estimate) : `${estimate} ${unit}`
}

/** How the cost of rules that are settled later is found. Empty without such rules. */
function settlementLines(rules: readonly RuleExplanation[]): string[] {
  const rows = rules.flatMap(rule => {
    const { applies, name } = rule
    if (!applies || !rule.settlement) return []
    const { actual, onUnsettled, ttlMs } = rule.settlement
    const end = onUnsettled === 'keep' ? 'stays spent' : 'is given back'
    const text = `${actualText(actual)}; without a settlement within ${formatDuration(ttlMs * 1e3)}, it ${end}`
    return [[name, text]]
  })
  return rows.length > 0
    ? ['Reserved before the request, and settled after it by:', columns(rows, '  '), '']
    : []
}

function actualText(actual: SettlementExplanation['actual']): string {
  if (typeof actual === 'string') return ACTUAL_TEXTS[actual]
  if ('usage' in actual) return `the usage in the response, in the format of ${actual.usage}`
  if ('header' in actual) return `the header ${actual.header} of the response`
  if ('json' in actual) return `${actual.json} in the response`
  return `the status of the response: 1 for ${actual.status.join(', ')}, else 0`
}

const ACTUAL_TEXTS = {
  bytes: 'the bytes of the response body',
  ms: 'the duration in ms',
  hook: 'the hook actual',
}

function costOf(
  { httpRequests, calls, admitted, refused, ended, settled, switchRead }: DecisionCost,
  isCluster: boolean,
): string {
  if (httpRequests === 0) return 'The store is not called, so there is no cost.'
  const requests = httpRequests === 1 ? '1 HTTP request' : `${httpRequests} HTTP requests`
  const slots = calls === 1 ? '' : `, ${calls} slots`
  return [
    `To the store: ${requests}${slots}${isCluster && calls > 1 ? '; one more if the caller is new to the isolate' : ''}.`,
    ...(admitted ? [`  admitted  ${countsOf(admitted)}`] : []),
    `  refused   ${countsOf(refused)}${isCluster && calls > 1 ? '; one more HTTP request if units must be refunded in another slot' : ''}`,
    ...(ended
      ? [
          `  ended     at most ${countsOf(ended)}; none if the end of the request is reported to the store together with the next admitted request of the same caller`,
        ]
      : []),
    ...(settled
      ? [
          `  settled   at most ${countsOf(settled)}; less if one message settles several requests of the same caller`,
        ]
      : []),
    ...(switchRead
      ? [
          `  switches  ${countsOf(switchRead)}, in addition, if the isolate has not read the live switches within the last second`,
        ]
      : []),
  ].join('\n')
}

function countsOf({ commands, least, most, dollarsPerMillion: [low, high] }: CommandCounts): string {
  const names = commands.map(({ command, least, most }) => {
    if (least === most) return least === 1 ? command : `${least} × ${command}`
    return `${least} to ${most} of ${command}`
  })
  const total = least === most ? `${least}` : `${least} to ${most}`
  const dollars = low === high ? `$${low}` : `$${low} to $${high}`
  return `${total} ${most === 1 ? 'command' : 'commands'} (${names.join(', ')}): ${dollars} per million`
}
